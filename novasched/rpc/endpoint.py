# SPDX-License-Identifier: Apache-2.0
"""The methods that other services call, and the two ports through which they act."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from typing import Any, Protocol

import oslo_messaging
from oslo_context.context import RequestContext

from novasched.errors import BadRequest
from novasched.model.request import Request
from novasched.model.selection import Selection
from novasched.objects import Aggregate, AggregateList, Instance, InstanceList, NovaObject
from novasched.rpc import decode, encode, versions
from novasched.rpc.faults import answered
from novasched.rpc.reader import Reader

# Operators search for what this logger writes.
LOG = logging.getLogger('nova.scheduler.manager')

CASTS = (
    'update_aggregates',
    'delete_aggregate',
    'update_instance_info',
    'delete_instance_info',
    'sync_instance_info',
)


class Driver(Protocol):
    """Chooses hosts."""

    def select_destinations(self, request: Request) -> list[list[Selection]]:
        """For each server its host, followed by alternates if the request wants them.

        :raises NoValidHost: there is not a host for every server
        """


class Observer(Protocol):
    """Hears what other services announce. Announcements get lost and overtake each
    other; none of these methods may fail because of it."""

    def update_aggregates(self, aggregates: Sequence[Aggregate]) -> None:
        """These aggregates were made or changed."""

    def delete_aggregate(self, aggregate: Aggregate) -> None:
        """This aggregate is gone."""

    def update_instance_info(self, host: str, instances: Sequence[Instance]) -> None:
        """These servers are on the host, perhaps among others."""

    def delete_instance_info(self, host: str, instance_uuid: str) -> None:
        """This server is no longer on the host."""

    def sync_instance_info(self, host: str, instance_uuids: Sequence[str]) -> None:
        """These servers and no others are on the host."""

    def ignored(self) -> Collection[str]:
        """The casts, by the names of their methods, that need not even be decoded now."""


class Indifferent:
    """The observer of a scheduler that reads all it needs with each request. It tells the
    log, if that is to have it."""

    def update_aggregates(self, aggregates: Sequence[Aggregate]) -> None:
        LOG.debug('Aggregates changed: %s', [each.value('name') for each in aggregates])

    def delete_aggregate(self, aggregate: Aggregate) -> None:
        LOG.debug('Aggregate deleted: %s', aggregate.value('name'))

    def update_instance_info(self, host: str, instances: Sequence[Instance]) -> None:
        LOG.debug('Instances on %s: %s', host, [each.value('uuid') for each in instances])

    def delete_instance_info(self, host: str, instance_uuid: str) -> None:
        LOG.debug('Instance %s left %s', instance_uuid, host)

    def sync_instance_info(self, host: str, instance_uuids: Sequence[str]) -> None:
        LOG.debug('All instances on %s: %s', host, instance_uuids)

    def ignored(self) -> Collection[str]:
        return () if LOG.isEnabledFor(logging.DEBUG) else CASTS


class SchedulerEndpoint:
    """The scheduler's own methods, in no namespace. Public methods are those that a
    message may name."""

    target = oslo_messaging.Target(version=versions.LATEST)

    def __init__(self, driver: Driver, observer: Observer | None = None) -> None:
        self._driver = driver
        self._observer = observer or Indifferent()

    @answered
    def select_destinations(self, context: RequestContext, /, **arguments: Any) -> encode.Reply:
        """Hosts for the servers of a request, in any form of 4.x."""
        call = versions.read(arguments)
        uuids = call.instance_uuids
        LOG.debug('Starting to schedule for instances: %s', uuids if uuids is None else list(uuids))
        chosen = self._driver.select_destinations(decode.request(call, context))
        return encode.reply(chosen, call.return_objects, Reader.of(call.spec))

    @answered
    def update_aggregates(self, context: RequestContext, /, **arguments: Any) -> None:
        """Cast by nova-api when an aggregate is made or changed: one, or several."""
        (aggregates,) = versions.take('update_aggregates', arguments)
        self._observer.update_aggregates(_each(aggregates, Aggregate, AggregateList))

    @answered
    def delete_aggregate(self, context: RequestContext, /, **arguments: Any) -> None:
        """Cast by nova-api when an aggregate is deleted."""
        (aggregate,) = versions.take('delete_aggregate', arguments)
        for each in _each(aggregate, Aggregate, AggregateList):
            self._observer.delete_aggregate(each)

    @answered
    def update_instance_info(self, context: RequestContext, /, **arguments: Any) -> None:
        """Cast by a compute that starts, or that got a server: any number of servers."""
        host, instances = versions.take('update_instance_info', arguments)
        self._observer.update_instance_info(host, _each(instances, Instance, InstanceList))

    @answered
    def delete_instance_info(self, context: RequestContext, /, **arguments: Any) -> None:
        """Cast by a compute that lost a server."""
        host, uuid = versions.take('delete_instance_info', arguments)
        self._observer.delete_instance_info(host, uuid)

    @answered
    def sync_instance_info(self, context: RequestContext, /, **arguments: Any) -> None:
        """Cast by each compute from time to time."""
        host, uuids = versions.take('sync_instance_info', arguments)
        self._observer.sync_instance_info(host, uuids)


class BaseEndpoint:
    """What every nova service answers."""

    target = oslo_messaging.Target(namespace='baseapi', version='1.1')

    def ping(self, context: RequestContext, arg: Any) -> dict[str, Any]:
        """Who is there, with what was sent."""
        return {'service': 'scheduler', 'arg': arg}

    def get_backdoor_port(self, context: RequestContext) -> None:
        """The port of eventlet's debugging console, which is not there: null."""


def _each(sent: Any, item: type[NovaObject], several: type[NovaObject]) -> list[Any]:
    """The objects of a list object, of a plain list or of one that stands alone."""
    if isinstance(sent, several):
        sent = sent.value('objects', [])
    every = sent if isinstance(sent, list) else [sent]
    for each in every:
        if not isinstance(each, item):
            raise BadRequest(f'an object {item.obj_name()} is wanted, not {type(each).__name__}')
    return list(every)
