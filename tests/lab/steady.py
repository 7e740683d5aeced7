# SPDX-License-Identifier: Apache-2.0
"""Clients that ask for one server after the other, as long as they are let."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import oslo_messaging
from oslo_config import cfg

from novasched.rpc.server import make_transport
from tests.lab.wire import a_spec

from .broker import TOPIC
from .client import new_uuids
from .nova_cloud import PROJECT, USER

CONTEXT = {'user_id': USER, 'project_id': PROJECT, 'is_admin': True}
PATIENCE = 60


@dataclass(frozen=True)
class Answer:
    """One request: when it was made (monotonic seconds), how long it took, for which server,
    and the host of this, or what was raised."""

    asked: float
    taken: float
    server: str
    host: str | None = None
    error: str | None = None


def arguments_for(server: str, **fields: Any) -> dict[str, Any]:
    """Those of a call for one server of 512 MB; fields of the request may be others."""
    fields = {'num_instances': 1, 'project_id': PROJECT, **fields}
    return {
        'spec_obj': a_spec(instance_uuid=server, **fields),
        'instance_uuids': [server],
        'return_objects': True,
        'return_alternates': False,
    }


class Caller:
    """oslo.messaging's own client, with arguments that go out as they are. Any number of
    threads may call."""

    def __init__(self, config: Path) -> None:
        conf = cfg.ConfigOpts()
        conf(['--config-file', str(config)], project='nova')
        self._transport = make_transport(conf)
        target = oslo_messaging.Target(topic=TOPIC, version='4.5')
        self._client = oslo_messaging.get_rpc_client(self._transport, target)

    def __enter__(self) -> Caller:
        return self

    def __exit__(self, *_exception: object) -> None:
        self._transport.cleanup()

    def call(
        self,
        method: str,
        /,
        arguments: dict[str, Any],
        context: dict[str, Any] | None = None,
        **how: Any,
    ) -> Any:
        """Call a method; ``how`` is what prepare() of the client takes."""
        return self._client.prepare(**{'timeout': PATIENCE, **how}).call(
            context or CONTEXT, method, **arguments
        )

    def cast(self, method: str, /, arguments: dict[str, Any], **how: Any) -> None:
        """Tell every scheduler, unless one is named, and wait for none."""
        self._client.prepare(**(how or {'fanout': True})).cast(CONTEXT, method, **arguments)

    def select(self, host: str, arguments: Mapping[str, Any], context: Mapping[str, Any]) -> Any:
        """What a scheduler answers to the oldest callers' version, or the class of its error."""
        try:
            return self.call(
                'select_destinations', dict(arguments), dict(context), server=host, version='4.0'
            )
        except oslo_messaging.RemoteError as error:
            return error.exc_type

    def place(self, uuid: str | None = None, **how: Any) -> Answer:
        """Ask for a server of 512 MB, a new one unless it is named."""
        server = uuid or new_uuids()[0]
        asked = time.monotonic()
        try:
            [[chosen]] = self.call('select_destinations', arguments_for(server), **how)
        except oslo_messaging.MessagingException as error:
            return Answer(asked, time.monotonic() - asked, server, error=repr(error))
        host = chosen['nova_object.data']['service_host']
        return Answer(asked, time.monotonic() - asked, server, host)


@dataclass
class Load:
    """What came of the requests up to now."""

    answers: list[Answer] = field(default_factory=list)

    def since(self, moment: float) -> Sequence[Answer]:
        return [each for each in self.answers if each.asked > moment]

    def failures(self) -> Sequence[Answer]:
        return [each for each in self.answers if each.error]


@contextmanager
def load(caller: Caller, clients: int, *, pause: float = 0, **how: Any) -> Iterator[Load]:
    """So many clients at work, which rest so many seconds before each request; at the end of
    the block all have got their last answers."""
    found, over = Load(), threading.Event()

    def ask() -> None:
        while not over.wait(pause):
            found.answers.append(caller.place(**how))

    with ThreadPoolExecutor(clients) as pool:
        asking = [pool.submit(ask) for _ in range(clients)]
        try:
            yield found
        finally:
            over.set()
    for each in asking:
        each.result()
