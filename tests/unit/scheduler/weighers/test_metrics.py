# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.errors import MetricMissing
from novasched.scheduler.weighers.metrics import MetricsWeigher
from tests.lab.builders import a_host, a_request

UNAVAILABLE = -10000.0


def a_monitored_host(metadata=(), **values):
    metrics = [{'name': name.replace('_', '.'), 'value': value} for name, value in values.items()]
    return a_host('h', nodename='n', metrics=tuple(metrics), metadata=metadata)


def weigher(*setting, **settings):
    return MetricsWeigher(Settings(metrics_weight_setting=setting, **settings))


@pytest.mark.parametrize(
    ('setting', 'values', 'weight'),
    [
        (['cpu.frequency=1'], {'cpu_frequency': 1600}, 1600.0),
        (['cpu.frequency=-0.5'], {'cpu_frequency': 1600, 'cpu_idle_time': 9}, -800.0),
        (['cpu.frequency=1', 'cpu.idle.time=2'], {'cpu_frequency': 3, 'cpu_idle_time': 5}, 13.0),
        (['cpu.frequency=1', 'cpu.frequency=1'], {'cpu_frequency': 3}, 6.0),
        (['cpu.frequency=1', 'broken', '=1', 'x=y'], {'cpu_frequency': 3}, 3.0),
        (['cpu.frequency=1'], {'cpu_frequency': 2.9}, 2.0),
        (['cpu.percent=1'], {'cpu_percent': 0.5}, 50.0),
        (['cpu.user.percent=1'], {'cpu_user_percent': 0.29}, 28.0),
        (['cpu.frequency=1'], {'cpu_frequency': '7'}, 7.0),
    ],
)
def test_sum_of_metrics(setting, values, weight):
    """Whole numbers, fractions of a CPU as percents rounded down, each times its ratio."""
    host = a_monitored_host(**values)
    assert weigher(*setting).weigh(host, a_request()) == weight


def test_the_last_of_a_name_counts():
    """Where monitors report a metric twice, the later value is the host's."""
    metrics = ({'name': 'cpu.frequency', 'value': 1}, {'name': 'cpu.frequency', 'value': 2})
    host = a_host(metrics=metrics)
    assert weigher('cpu.frequency=1').weigh(host, a_request()) == 2.0


@pytest.mark.parametrize('values', [{}, {'cpu_frequency': None}, {'cpu_frequency': 'fast'}])
def test_a_required_metric(values):
    """A host without it fails the request, whose text names metric, host and node."""
    with pytest.raises(MetricMissing) as caught:
        weigher('cpu.frequency=1').weigh(a_monitored_host(**values), a_request())
    expected = 'Metric cpu.frequency could not be found on the compute host node h.n.'
    assert str(caught.value) == expected


@pytest.mark.parametrize(
    ('setting', 'multiplier', 'metadata', 'weight'),
    [
        (['cpu.frequency=1', 'cpu.idle.time=1'], 1.0, (), UNAVAILABLE),
        (['cpu.idle.time=1', 'cpu.frequency=1'], 1.0, (), UNAVAILABLE),
        (['cpu.frequency=1', 'cpu.idle.time=0'], 1.0, (), 5.0),
        (['cpu.frequency=1', 'cpu.idle.time=1'], 0.0, (), 5.0),
        (['cpu.frequency=1', 'cpu.idle.time=1'], 1.0, {'metrics_weight_multiplier': '0'}, 5.0),
        (
            ['cpu.frequency=1', 'cpu.idle.time=1'],
            1.0,
            {'metrics_weight_multiplier': 'x'},
            UNAVAILABLE,
        ),
    ],
)
def test_an_unavailable_metric(setting, multiplier, metadata, weight):
    """Where metrics are not required, a lacking one weighs as the operator says, unless
    its ratio or the host's multiplier is 0."""
    one = weigher(*setting, metrics_required=False, metrics_weight_multiplier=multiplier)
    host = a_monitored_host(cpu_frequency=5, metadata=metadata)
    assert one.weigh(host, a_request()) == weight


def test_nothing_to_weigh():
    """Without a setting that can be read, the weigher does not apply."""
    assert not weigher().applies(a_request())
    assert not weigher('broken').applies(a_request())
    assert weigher('a=1').applies(a_request())
