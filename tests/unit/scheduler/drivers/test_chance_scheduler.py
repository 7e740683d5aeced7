# SPDX-License-Identifier: Apache-2.0
from collections import Counter
from random import Random

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.drivers.chance_scheduler import ChanceScheduler, RandomPipeline
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.request import Destination
from tests.lab.builders import a_host, a_request
from tests.lab.memory_schedulers import a_driver, ask

A = a_host('a')
B = a_host('b')
C = a_host('c')
DOWN = a_host('down', up=False)
DISABLED = a_host('disabled', disabled=True)


def scheduler(*hosts, **options):
    return a_driver(hosts, kind=ChanceScheduler, **options)


def test_hosts_that_are_up_are_drawn_equally_often():
    """Hosts that are up and not ignored are drawn equally often, small hosts as often
    as large hosts."""
    pipeline = RandomPipeline(Settings(), [], [])
    request = a_request(ignore_hosts=('B',))
    hosts = [DOWN, a_host('small', ram=1), B, DISABLED, a_host('large', ram=9999)]

    first = Counter()
    for seed in range(400):
        ranking = pipeline.rank(hosts, request, 0, Random(seed))
        assert {host.host for host in ranking.hosts} == {'small', 'large'}
        first[ranking.hosts[0].host] += 1

    assert 150 < first['small'] < 250


@pytest.mark.parametrize(
    ('hosts', 'fields', 'reason'),
    [
        ((), {}, ''),
        ((DOWN, DISABLED), {}, 'Is the appropriate service running?'),
        ((A, DOWN), {'ignore_hosts': ('a',)}, 'Could not find another compute'),
        (
            (A,),
            {'requested_destination': Destination(host='z')},
            'Could not find another compute',
        ),
    ],
)
def test_a_refusal_has_the_reason_of_nova(hosts, fields, reason):
    """The reasons are nova's: no host is up, or the request ignores the hosts that are
    up."""
    with pytest.raises(NoValidHost) as refusal:
        ask(scheduler(*hosts), **fields)
    assert refusal.value.reason == reason


@pytest.mark.parametrize('count', [1, 2, 3, 5])
def test_instances_share_a_host_only_if_hosts_run_out(count):
    """Instances of a multi-create share a host only if there are more instances than
    hosts."""
    for _ in range(20):
        chosen = [row[0] for row in ask(scheduler(A, B, C), count=count)]
        assert len(set(chosen)) == min(count, 3)
