# SPDX-License-Identifier: Apache-2.0
"""Run recorded requests through a shadow, and report. Each line has the bodies of the AMQP
messages of a request and its reply.

A line is ``{"request": BODY, "reply": BODY}``; ``reply`` may be left out. A body is what
oslo.messaging put into a message, with its envelope (``oslo.message``) or without. The token
in a request's context is not kept.
"""

from __future__ import annotations

import argparse
import json
import logging
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from oslo_config import cfg

# First: it chooses the threads with which the libraries below are imported.
import novasched.concurrency  # noqa: F401
from novasched.conf import loading
from novasched.conf.errors import ConfigError, NovaschedError
from novasched.rpc import decode, versions
from novasched.rpc.serializer import Serializer
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.request import Request
from novasched.service.build import Application, compose
from novasched.tools import config_files
from novasched.tools.shadow.comparison import ComparedRequest, Shadow, compare

CONTEXT_PREFIX = '_context_'


@dataclass(frozen=True, slots=True)
class Recorded:
    """A request, and the host of each of its instances; none if it was refused, None if that is
    not known."""

    line: int
    request: Request
    hosts: tuple[str, ...] | None


@dataclass(frozen=True, slots=True)
class Unread:
    """A line that is no recorded request."""

    line: int
    why: str


def read(lines: Iterable[str]) -> Iterator[Recorded | Unread]:
    """The requests in the lines of a file; empty lines and other methods are passed over."""
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            both = json.loads(line)
            body = _body(both['request'])
            if body.get('method') != 'select_destinations':
                continue
            yield Recorded(number, _request(body), _hosts(both.get('reply')))
        except BadRequest as error:
            yield Unread(number, str(error))
        except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
            yield Unread(number, f'no pair of request and reply ({type(error).__name__})')


def _body(body: Any) -> Mapping[str, Any]:
    """A message without its envelope."""
    opened = json.loads(body['oslo.message']) if 'oslo.message' in body else body
    if not isinstance(opened, Mapping):
        raise TypeError(type(opened).__name__)
    return opened


def _request(body: Mapping[str, Any]) -> Request:
    reader = Serializer()
    names = {
        key.removeprefix(CONTEXT_PREFIX): value
        for key, value in body.items()
        if key.startswith(CONTEXT_PREFIX)
    }
    context = reader.deserialize_context(names)
    arguments = {
        name: reader.deserialize_entity(context, value) for name, value in body['args'].items()
    }
    return decode.request(versions.read(arguments), context)


def _hosts(reply: Any) -> tuple[str, ...] | None:
    if reply is None:
        return None
    body = _body(reply)
    if body.get('failure'):
        failure = json.loads(body['failure'])
        return () if failure['class'] == 'NoValidHost' else None
    # For each instance a list of Selection objects of which the first counts; a dict before 4.5.
    return tuple(
        str(each[0]['nova_object.data']['service_host'] if isinstance(each, list) else each['host'])
        for each in body['result']
    )


@contextmanager
def shadowing(
    arguments: argparse.Namespace,
) -> Iterator[tuple[cfg.ConfigOpts, Application, Shadow]]:
    """nova.conf, the scheduler that it describes, and a shadow of that.

    :raises NovaschedError: nova.conf or the databases cannot be used.
    """
    logging.getLogger().addHandler(logging.NullHandler())
    conf = configured(arguments.config_file, arguments.config_dir)
    with composed(conf) as (application, driver):
        yield conf, application, Shadow(driver, arguments.seed)


def configured(files: Iterable[str], folders: Iterable[str]) -> cfg.ConfigOpts:
    """nova.conf, as the daemon reads it.

    :raises ConfigError: it cannot be read.
    """
    return loading.load(config_files(files, folders), 'novasched')


@contextmanager
def composed(conf: cfg.ConfigOpts) -> Iterator[tuple[Application, FilterScheduler]]:
    """The scheduler that nova.conf describes, and its driver.

    :raises NovaschedError: nova.conf or the databases cannot be used.
    """
    application = compose(conf, loading.settings(conf), loading.service_settings(conf))
    try:
        if type(application.driver) is not FilterScheduler:
            why = 'only filter_scheduler can decide without claiming'
            raise ConfigError('[scheduler] driver', conf.scheduler.driver, why)
        yield application, application.driver
    finally:
        application.close()


def run(arguments: argparse.Namespace, lines: Iterable[str]) -> list[ComparedRequest]:
    """Decide every request and compare.

    :raises NovaschedError: nova.conf or the databases cannot be used.
    """
    rows = []
    with shadowing(arguments) as (_, _, shadow):
        for each in read(lines):
            if isinstance(each, Unread):
                rows.append(ComparedRequest(each.line, failure=each.why))
                continue
            try:
                decision = shadow.decide(each.request)
            except NovaschedError as error:
                rows.append(ComparedRequest(each.line, failure=str(error)))
                continue
            known = each.hosts is not None
            difference = compare(each.hosts, decision) if each.hosts is not None else None
            rows.append(ComparedRequest(each.line, decision.hosts, known, difference))
    return rows
