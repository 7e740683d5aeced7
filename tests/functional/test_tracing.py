# SPDX-License-Identifier: Apache-2.0
"""Traces of the decisions of a real daemon, sent to a collector."""

import base64
import time

import psutil
import pytest

from novasched.scheduler.decision import STEPS
from tests.lab.client import new_uuids
from tests.lab.collector import Collector
from tests.lab.daemon import Daemon
from tests.lab.hidden import a_secret
from tests.lab.processes import wait_until
from tests.lab.steady import CONTEXT, arguments_for

SOON = 60.0
OFTEN = {'OTEL_BSP_SCHEDULE_DELAY': '50'}
"""So many milliseconds pass until a batch goes out."""

TRACE, PARENT = '4bf92f3577b34da6a3ce929d0e0e4736', '00f067aa0ba902b7'
CALLER = f'00-{TRACE}-{PARENT}-01'


@pytest.fixture(scope='module')
def hosts(cloud):
    cloud.reset()
    for number in range(2):
        cloud.add_host(f'host-{number}', vcpus=1000, ram_mb=1_000_000, disk_gb=100_000)
    return cloud


def traced(address, workers=1):
    """Options for a daemon whose collector is there."""
    return {
        'scheduler': {'workers': workers},
        'novasched': {'tracing_endpoint': f'http://{address}'},
    }


def place(caller, daemon, **context):
    """Ask for a server; it gets its host, and this is its UUID."""
    [server] = new_uuids()
    [[chosen]] = caller.call(
        'select_destinations',
        arguments_for(server),
        context={**CONTEXT, **context},
        server=daemon.host,
    )
    assert chosen['nova_object.data']['service_host'].startswith('host-')
    return server


def of(server, collector):
    """The span of a request, and those below it, when they are there."""
    found = []

    def is_told():
        heard = [*collector.heard]
        found[:] = [s for s in heard if s.values.get('openstack.server_ids') == [server]]
        found.extend(s for s in heard if found and s.parent == found[0].id)
        return len(found) > 1

    wait_until(is_told, SOON, f'trace of {server}')
    return found[0], sorted(found[1:], key=lambda span: span.start)


def test_two_workers(hosts, caller):
    """Each request of each worker is a trace, or a part of its caller's; it lasts from its
    first step to its last, and no password is told to anybody but the collector."""
    password = a_secret()
    with (
        Collector() as collector,
        Daemon(hosts, traced(f'me:{password}@{collector.address}', 2), environment=OFTEN) as daemon,
    ):
        workers = {each.pid for each in psutil.Process(daemon.pid).children()}
        began = time.time_ns()
        servers = []

        def all_heard():
            servers.append(place(caller, daemon, request_id='req-ours', traceparent=CALLER))
            whole, _ = of(servers[-1], collector)
            return workers == {span.who['process.pid'] for span in collector.heard} and bool(whole)

        wait_until(all_heard, SOON, 'trace of each worker')
        ended = time.time_ns()
        for server in servers:
            whole, steps = of(server, collector)
            assert (whole.name, whole.trace, whole.parent) == ('select_destinations', TRACE, PARENT)
            assert whole.values['openstack.request_id'] == 'req-ours'
            assert whole.values['novasched.headline'].endswith(': 2 of 2 hosts fit')
            assert whole.who['service.name'] == 'novasched'
            assert whole.who['host.name'] == daemon.host
            assert [step.name for step in steps] == [*STEPS]
            assert {(step.trace, step.who['process.pid']) for step in steps} == {
                (TRACE, whole.who['process.pid'])
            }
            edges = [whole.start, *(step.end for step in steps)]
            assert [step.start for step in steps] == edges[:-1]
            assert began < whole.start < whole.end == edges[-1] < ended
        alone, _ = of(place(caller, daemon), collector)
        assert (alone.parent, alone.trace == TRACE) == ('', False)
        assert daemon.stop() == 0
        assert 'Traces' not in daemon.text()
        assert password not in daemon.text()
    authorization = base64.b64encode(f'me:{password}'.encode()).decode()
    assert {each['Authorization'] for each in collector.headers} == {f'Basic {authorization}'}


def test_what_is_left_when_it_ends(hosts, caller):
    """A worker that ends sends what it has."""
    with Collector() as collector:
        with Daemon(hosts, traced(collector.address)) as daemon:
            server = place(caller, daemon)
            assert daemon.stop() == 0
        _, steps = of(server, collector)
        assert [step.name for step in steps] == [*STEPS]


def test_a_collector_that_hangs(hosts, caller):
    """Every request is answered, and the daemon ends in order, though what it has to tell is
    never heard. One that is away is told of once, see the unit tests."""
    with (
        Collector(hangs=True) as collector,
        Daemon(hosts, traced(collector.address), environment=OFTEN) as daemon,
    ):
        place(caller, daemon)
        assert collector.asked.acquire(timeout=SOON)
        for _ in range(10):
            place(caller, daemon)
        assert daemon.stop() == 0
