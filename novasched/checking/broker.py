# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ: each host of ``transport_url``, what it is, and who takes requests there now."""

from __future__ import annotations

import functools
import ssl
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import oslo_messaging
from kombu.connection import Connection
from oslo_config import cfg

from novasched.checking.finding import Finding, Level
from novasched.checking.nova_conf import NovaConf
from novasched.checking.questions import Question, answers
from novasched.errors import ConfigError
from novasched.rpc.server import TOPIC, make_transport

AREA = 'RabbitMQ'
OPTION = '[DEFAULT] transport_url'
DRIVER = 'rabbit'
PORT = 5672

Findings = Iterator[Finding]


def questions(nova_conf: NovaConf) -> list[Question]:
    """One for all hosts, which are then asked at once."""
    return [Question(AREA, OPTION, functools.partial(_hosts, nova_conf), patience=2)]


def _hosts(nova_conf: NovaConf) -> Findings:
    conf = nova_conf.conf
    try:
        make_transport(conf).cleanup()
        url = oslo_messaging.TransportURL.parse(conf)
    except ConfigError as error:
        yield Finding(AREA, Level.ERROR, OPTION, str(error))
    except ValueError:
        yield Finding(AREA, Level.ERROR, OPTION, 'it cannot be read as a URL')
    else:
        yield from _of_url(nova_conf, url)


def _of_url(nova_conf: NovaConf, url: oslo_messaging.TransportURL) -> Findings:
    if url.transport != DRIVER:
        text = f'the driver {url.transport} is not looked into'
        yield Finding(AREA, Level.NOTE, OPTION, text)
        return
    if not url.hosts:
        yield Finding(AREA, Level.ERROR, OPTION, 'it names no host')
    several = []
    for host in url.hosts:
        name = f'{host.hostname or "localhost"}:{host.port or PORT}'
        ask = functools.partial(_check, nova_conf.conf, host, url.virtual_host, name)
        several.append(Question(AREA, name, ask))
    found = answers(several, nova_conf.timeout)
    serves = any(each.level is Level.OK for each in found)
    for each in found:
        spared = serves and each.level is Level.ERROR
        yield replace(each, level=Level.WARNING) if spared else each


def _check(conf: cfg.ConfigOpts, host: Any, virtual_host: str | None, name: str) -> Findings:
    group = conf.oslo_messaging_rabbit
    link = Connection(
        transport='pyamqp',
        hostname=host.hostname or 'localhost',
        port=host.port or PORT,
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
            yield Finding(AREA, Level.OK, name, text)
        except (*link.connection_errors, *link.channel_errors) as error:
            text = ' '.join(str(error).split()) or type(error).__name__
            yield Finding(AREA, Level.ERROR, name, text)


def _queue(link: Connection) -> str:
    """How many schedulers take requests now; the queue is only looked at."""
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
