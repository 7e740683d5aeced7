# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ and Placement: there, new enough, and willing to talk to us."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import oslo_messaging
from keystoneauth1 import adapter
from keystoneauth1 import exceptions as ks_exc
from keystoneauth1.discover import normalize_version_number
from kombu.connection import Connection
from oslo_config import cfg

from novasched.cells.mappings import CELL0
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.redaction import hide
from novasched.placement.api import MICROVERSION
from novasched.placement.client import PlacementClient
from novasched.rpc.server import TOPIC, make_transport
from novasched.scheduler.errors import PlacementUnauthorized, PlacementUnavailable
from novasched.service.build import http_adapter
from novasched.tools.check.findings import Finding, Level, Question, answers
from novasched.tools.check.options import NovaConf

TRANSPORT_OPTION = '[DEFAULT] transport_url'
RABBIT_PORT = 5672

Findings = Iterator[Finding]


def check_broker(nova_conf: NovaConf) -> Findings:
    """Ask all hosts of the transport URL, at once."""
    conf = nova_conf.conf
    try:
        make_transport(conf).cleanup()
        url = oslo_messaging.TransportURL.parse(conf)
    except (ConfigError, ValueError) as error:
        text = str(error) if isinstance(error, ConfigError) else 'it cannot be read as a URL'
        yield Finding(Level.ERROR, TRANSPORT_OPTION, text)
        return
    if url.transport != 'rabbit':
        text = f'the driver {url.transport} is not looked into'
        yield Finding(Level.NOTE, TRANSPORT_OPTION, text)
        return
    if not url.hosts:
        yield Finding(Level.ERROR, TRANSPORT_OPTION, 'it names no host')
    several = []
    for host in url.hosts:
        name = f'{host.hostname or "localhost"}:{host.port or RABBIT_PORT}'
        ask = functools.partial(_ask_broker, conf, host, url.virtual_host, name)
        several.append(Question(name, ask))
    found = answers(several, nova_conf.timeout)
    serves = any(each.level is Level.OK for each in found)
    for each in found:
        spared = serves and each.level is Level.ERROR
        yield replace(each, level=Level.WARNING) if spared else each


def _ask_broker(conf: cfg.ConfigOpts, host: Any, virtual_host: str | None, name: str) -> Findings:
    group = conf.oslo_messaging_rabbit
    link = Connection(
        transport='pyamqp',
        hostname=host.hostname or 'localhost',
        port=host.port or RABBIT_PORT,
        userid=host.username or '',
        password=host.password or '',
        virtual_host=virtual_host or '/',
        login_method=group.rabbit_login_method,
        ssl=_tls(group),
    )
    with link:
        try:
            link.connect()
            said = link.connection.server_properties
            product = ' '.join(str(said.get(key, '')) for key in ('product', 'version')).strip()
            text = f'{product or "a broker without a name"}, {_queue(link)}'
            yield Finding(Level.OK, name, text)
        except (*link.connection_errors, *link.channel_errors) as error:
            text = ' '.join(hide(error).split()) or type(error).__name__
            yield Finding(Level.ERROR, name, text)


def _queue(link: Connection) -> str:
    """Count the schedulers that take requests now, without declaring the queue."""
    try:
        found = link.channel().queue_declare(TOPIC, passive=True)
    except link.channel_errors:
        return f'no queue {TOPIC} yet'
    return f'{found.consumer_count} consumers of the queue {TOPIC}'


def _tls(group: cfg.ConfigOpts.GroupAttr) -> dict[str, Any] | bool:
    """oslo.messaging's options of TLS, as kombu takes them."""
    if not group.ssl:
        return False
    files = {
        'keyfile': group.ssl_key_file,
        'certfile': group.ssl_cert_file,
        'ca_certs': group.ssl_ca_file,
    }
    wanted: dict[str, Any] = {name: path for name, path in files.items() if path}
    if group.ssl_ca_file:
        # Of no name kombu makes that of the host.
        wanted |= {'cert_reqs': ssl.CERT_REQUIRED, 'server_hostname': None}
    return wanted or True


UNUSED_PROVIDER = CELL0
"""A UUID that no resource provider has."""


def check_placement(nova_conf: NovaConf) -> Findings:
    """See that Placement is new enough, and accepts our credentials."""
    try:
        http = http_adapter(nova_conf.conf, 'placement', nova_conf.service)
        newest = _newest(http)
    except NovaschedError as error:
        yield Finding(Level.ERROR, '[placement]', str(error))
        return
    if normalize_version_number(newest) < normalize_version_number(MICROVERSION):
        text = f'its newest microversion is {newest}; {MICROVERSION} is needed (Train)'
        yield Finding(Level.ERROR, 'microversion', text)
    else:
        text = f'up to {newest}; {MICROVERSION} is used'
        yield Finding(Level.OK, 'microversion', text)
    client = PlacementClient(nova_conf.settings, http)
    try:
        client.check()
        client.aggregates(UNUSED_PROVIDER)
    except PlacementUnauthorized as error:
        yield Finding(Level.ERROR, 'credentials', f'not accepted: {error}')
    except PlacementUnavailable as error:
        yield Finding(Level.ERROR, 'credentials', f'not tried out: {error}')
    else:
        yield Finding(Level.OK, 'credentials', 'accepted')


def _newest(http: adapter.Adapter) -> str:
    """The newest microversion, which Placement tells everybody at its root.

    :raises PlacementUnavailable: it does not answer, or somebody else does.
    :raises PlacementUnauthorized: keystone, which knows where it is, refuses us.
    """
    try:
        response = http.get('/', authenticated=False, raise_exc=False)
    except (ks_exc.Unauthorized, ks_exc.MissingAuthPlugin) as error:
        raise PlacementUnauthorized(hide(error)) from None
    except (ks_exc.ClientException, OSError) as error:  # the latter of the files of TLS
        raise PlacementUnavailable(hide(error)) from None
    try:
        newest = str(response.json()['versions'][0]['max_version'])
        normalize_version_number(newest)
    except (ValueError, KeyError, IndexError, TypeError):
        text = f'what answers there ({response.status_code}) is not Placement'
        raise PlacementUnavailable(text) from None
    return newest
