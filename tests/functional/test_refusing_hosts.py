# SPDX-License-Identifier: Apache-2.0
"""A host that refuses again and again, to a real daemon, Placement and client of
nova's."""

import json
import re

import pytest
import requests

from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, new_uuids
from tests.lab.processes import free_port, wait_until
from tests.lab.proxy import Proxy, answer

PERIOD = 20.0
WAIT = 90.0
FULL = {
    'status': 409,
    'code': 'placement.undefined_code',
    'detail': 'Unable to allocate inventory',
}


@pytest.fixture
def proxy(cloud):
    """What stands between the daemon and Placement, and two hosts, of which one is
    preferred."""
    cloud.reset()
    cloud.add_host('one', ram_mb=65536)
    cloud.add_host('two', ram_mb=32768)
    with Proxy(cloud.placement_url) as proxy:
        yield proxy
    cloud.reset()


def refusing(proxy, provider):
    """From now on no claim on a provider succeeds."""

    def rule(method, path, body):
        refused = method == 'PUT' and provider.encode() in body
        if refused:
            return answer(409, json.dumps({'errors': [FULL]}).encode())
        return None

    proxy.faults = rule


def failed_on(*hosts):
    """Fields of a request for an instance whose build has failed there."""
    return {
        'retry': {
            'num_attempts': 1 + len(hosts),
            'hosts': [[host, host] for host in hosts],
        }
    }


def shown(bind):
    """What the metrics tell of hosts that refuse."""
    text = requests.get(f'http://{bind}/metrics', timeout=WAIT).text
    return dict(
        re.findall(
            r'^novasched_(host_refusals_total{.*}|refusing_hosts) (\S+)$', text, re.M
        )
    )


TOLD = [
    'Host one refused 3 servers within 20 s (2 claims, 1 builds) and is tried last for 20 s',
    'Host one is no longer one that refuses many servers',
]


@pytest.mark.parametrize(('limit', 'then', 'told'), [(3, 'two', TOLD), (0, 'one', [])])
def test_it_is_tried_last_for_a_while(cloud, client, proxy, limit, then, told):
    """Two claims and a build that failed there, which two requests name: then it is a
    candidate like any other and behind them all, until the time is over. Without the
    option it is only counted."""
    one = cloud.computes['one'].uuid
    bind = f'127.0.0.1:{free_port()}'
    config = {
        'placement': {'endpoint': proxy.url},
        'filter_scheduler': {'weight_classes': 'nova.scheduler.weights.ram.RAMWeigher'},
        'novasched': {
            'metrics_bind': bind, 'candidates_max_age': 0,
            'refusing_host_limit': limit, 'refusing_host_period': PERIOD,
        },
    }  # fmt: skip
    with Daemon(cloud, config) as daemon:
        refusing(proxy, one)
        assert client.chosen() == ['two']
        proxy.faults = None
        [again] = new_uuids()
        for hosts in (['one'], ['one', 'two']):
            assert client.chosen(again, **failed_on(*hosts)) == ['one']
            cloud.placement.release(again)
        refusing(proxy, one)
        assert client.chosen() == ['two']
        proxy.faults = None
        [[first, second]] = client.select_destinations(
            new_uuids(), Flavor(), return_alternates=True
        )
        assert {first['service_host'], second['service_host']} == {'one', 'two'}
        assert first['service_host'] == then
        assert client.chosen(ignore_hosts=['two']) == ['one']
        counts = {
            'host_refusals_total{kind="claim"}': '2.0',
            'host_refusals_total{kind="build"}': '2.0',
            'refusing_hosts': '1.0' if limit else '0.0',
        }
        wait_until(lambda: shown(bind) == counts, WAIT, 'metrics')
        wait_until(lambda: client.chosen() == ['one'], WAIT, 'end of the time')
        wait_until(lambda: shown(bind)['refusing_hosts'] == '0.0', WAIT, 'metrics')
        assert (
            re.findall(r'nova\.scheduler\.manager .*?(Host one .*)', daemon.text())
            == told
        )
