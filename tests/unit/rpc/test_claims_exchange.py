# SPDX-License-Identifier: Apache-2.0
"""The connections of the exchange for pending claims."""

import pytest
from oslo_config import cfg

from novasched.rpc.claims_exchange import reconnect_pause, uses_rabbitmq
from novasched.rpc.server import make_transport

RABBIT = 'rabbit://nova:secret@one:5672,nova:secret@two:5672/'


def a_transport(tmp_path, query='', group='', url=RABBIT):
    """The RPC transport of a nova.conf, which connects nowhere."""
    path = tmp_path / 'nova.conf'
    option = f'transport_url = {url}{query}'
    path.write_text(f'[DEFAULT]\n{option}\n[oslo_messaging_rabbit]\n{group}\n')
    conf = cfg.ConfigOpts()
    conf(['--config-file', str(path)], project='nova')
    return make_transport(conf)


@pytest.mark.parametrize(('query', 'group', 'pauses'), [
    ('', '', [0, 2, 4, 6]),
    ('?rabbit_retry_interval=5&kombu_reconnect_delay=0', '', [0, 5, 7, 9]),
    ('', 'rabbit_retry_backoff = 10\nrabbit_interval_max = 12', [0, 2, 12, 13]),
    ('?rabbit_retry_backoff=0', 'rabbit_retry_backoff = 10', [0, 2, 2, 2]),
])  # fmt: skip
def test_pauses_between_connections_grow_as_in_oslo_messaging(
    tmp_path, query, group, pauses
):
    """Pauses grow as in oslo.messaging. Options in the query of the URL take precedence
    over the group."""
    options = a_transport(tmp_path, query, group).conf.oslo_messaging_rabbit
    for failures, pause in enumerate(pauses):
        assert reconnect_pause(options, failures) == pause


def test_the_reconnect_pause_has_a_random_splay(tmp_path):
    """The splay keeps schedulers from reconnecting at the same moment."""
    transport = a_transport(tmp_path, '?kombu_reconnect_splay=3')
    options = transport.conf.oslo_messaging_rabbit
    pauses = {reconnect_pause(options, 1) for _ in range(99)}
    assert len(pauses) > 1
    assert min(pauses) >= 2
    assert max(pauses) <= 5


def test_claims_are_not_shared_over_a_broker_other_than_rabbitmq(tmp_path):
    """Schedulers share claims over RabbitMQ only."""
    transport = a_transport(tmp_path, url='kombu+memory://localhost/')
    assert not uses_rabbitmq(transport.conf)


@pytest.mark.parametrize('password', ['a/b', 'a?b', 'a[b', 'a#b'])
def test_an_invalid_transport_url_is_not_taken_for_rabbitmq(tmp_path, password):
    """A URL that cannot be parsed raises nothing here, so that the password in the URL
    is not in an error. The RPC server refuses the URL."""
    path = tmp_path / 'nova.conf'
    path.write_text(f'[DEFAULT]\ntransport_url = rabbit://nova:{password}@one:5672/\n')
    conf = cfg.ConfigOpts()
    conf(['--config-file', str(path)], project='nova')
    assert not uses_rabbitmq(conf)
