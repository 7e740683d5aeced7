# SPDX-License-Identifier: Apache-2.0
"""A plugin that raises, as the caller and the operator get to know it."""

import logging

import oslo_messaging
import pytest

from novasched import conf as configuration
from novasched import plugins
from novasched.drivers import Parts
from novasched.drivers.filter_scheduler import FilterScheduler
from novasched.rpc.server import make_server, make_transport
from tests.builders import a_host
from tests.ports import CountingPlacement, StillHosts
from tests.unit.rpc.wire import CALLS, context_of

CONF = """
    [DEFAULT]
    transport_url = kombu+memory://plugins/
    [filter_scheduler]
    available_filters = tests.unit.plugins.nova_style.BrokenFilter
    enabled_filters = BrokenFilter
    weight_classes =
"""


@pytest.fixture
def call(tmp_path):
    """Ask a daemon with a broken filter to boot a server, on hosts that have so many."""
    path = tmp_path / 'nova.conf'
    path.write_text('\n'.join(line.strip() for line in CONF.splitlines()))
    conf = configuration.load(['--config-file', str(path)], 'novasched')
    settings = configuration.settings(conf)
    cells = StillHosts([])
    placement = CountingPlacement({a_host().uuid: 5})
    filters = plugins.filters(settings)
    driver = FilterScheduler(Parts(settings, [], placement, cells, filters))
    transport = make_transport(conf)
    server = make_server(transport, 'here', driver)
    server.start()
    client = oslo_messaging.get_rpc_client(transport, oslo_messaging.Target(topic='scheduler'))

    def boot(num_instances):
        cells.hosts = {a_host().uuid: a_host(num_instances=num_instances)}
        arguments = CALLS['boot']['args']
        client.prepare(version='4.5', timeout=10).call(
            context_of(CALLS['boot']), 'select_destinations', **arguments
        )
        return placement.allocations

    yield boot
    server.stop()
    server.wait()
    transport.cleanup()


def test_a_plugin_that_raises(call, caplog):
    """The caller gets an error that names the plugin; the log has it once, with where it
    comes from; and the next request is served."""
    with caplog.at_level(logging.INFO), pytest.raises(oslo_messaging.RemoteError) as failure:
        call(1)
    assert failure.value.exc_type == 'BadPlugin'
    assert failure.value.value == 'BrokenFilter raised RuntimeError: out of order'
    (error,) = [each for each in caplog.records if each.levelno >= logging.ERROR]
    assert 'BadPlugin: BrokenFilter raised RuntimeError: out of order' in error.exc_text
    assert 'nova_style.py' in error.exc_text
    assert len(call(0)) == 1
