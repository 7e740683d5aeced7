# SPDX-License-Identifier: Apache-2.0
"""A process that shares pending claims over a broker, without the rest of the
daemon."""

from contextlib import contextmanager

from oslo_config import cfg

from novasched.conf.settings import Settings
from novasched.rpc.claims_exchange import ClaimsExchange
from novasched.rpc.peers import PeerSchedulers
from novasched.rpc.server import make_transport
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger


@contextmanager
def sharing(cloud, name, url):
    """The pending claims of a process that is connected to the broker of a URL."""
    conf = cfg.ConfigOpts()
    config = cloud.config(name, {'DEFAULT': {'transport_url': url}})
    conf(['--config-file', str(config)], project='nova')
    transport = make_transport(conf)
    ledger = SharedLedger(timeout=Settings().in_flight_timeout)
    peers = PeerSchedulers(ledger, name)
    claims = PendingClaims(Settings(), ledger, peers)
    exchange = ClaimsExchange(transport, peers)
    exchange.start()
    try:
        yield claims
    finally:
        exchange.close()
        transport.cleanup()
