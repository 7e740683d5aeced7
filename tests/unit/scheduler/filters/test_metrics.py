# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters.metrics import MetricsFilter
from tests.lab.builders import a_host, a_request

HOST = a_host(metrics=({'name': 'cpu.frequency', 'value': 1000}, {'name': 'cpu.percent'}))


@pytest.mark.parametrize(
    ('weighed', 'host', 'verdict'),
    [
        (('cpu.frequency=1.0',), HOST, None),
        (('cpu.frequency=1.0', 'cpu.percent=-2'), HOST, None),
        (('cpu.idle.percent=1',), HOST, 'has no metric cpu.idle.percent'),
        (('b=1', 'cpu.percent=1', 'a=1'), HOST, 'has no metric a, b'),
        (('cpu.frequency=1.0',), a_host(), 'has no metric cpu.frequency'),
        (('cpu.frequency=1.0',), a_host(metrics=(None, {}, {'name': []})), 'has no metric cpu.frequency'),
        (('a=fast', 'b', '=1', 'cpu.percent=1'), HOST, None),
    ],
)  # fmt: skip
def test_each_weighed_metric_is_there(weighed, host, verdict):
    """A host reports every metric to which the option gives a weight that is a number."""
    each = MetricsFilter(Settings(metrics_weight_setting=weighed))
    assert each.applies(a_request())
    assert each.reject(host, a_request()) == verdict


@pytest.mark.parametrize('weighed', [(), ('a=fast',)])
def test_nothing_is_weighed(weighed):
    """Without a weight there is nothing to check."""
    assert not MetricsFilter(Settings(metrics_weight_setting=weighed)).applies(a_request())
