# SPDX-License-Identifier: Apache-2.0
"""Between a message that has come and the method that it names."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

import oslo_messaging

from novasched.errors import BadRequest
from novasched.rpc.callers import Callers

LOG = logging.getLogger(__name__)
VERSION = re.compile(r'[0-9]{1,9}(\.[0-9]{1,9}){1,2}')


class Dispatcher(oslo_messaging.RPCDispatcher):  # type: ignore[misc]
    """oslo.messaging's own, but for who sends heartbeats to callers.

    That one starts a thread for each call that wants them when it is begun, and never ends it
    if there is no such method. Here one thread does it for all, also for those not begun.
    """

    def __init__(self, endpoints: Sequence[Any], serializer: Any, callers: Callers) -> None:
        super().__init__(list(endpoints), serializer, oslo_messaging.DefaultRPCAccessPolicy)
        self._callers = callers

    def dispatch(self, incoming: Any) -> Any:
        """See oslo.messaging's.

        :raises NoSuchMethod: it has no such method.
        :raises UnsupportedVersion: it has none of that version.
        :raises ExpectedException: the message is none of a call.
        """
        _check(incoming.message)
        self._callers.add(incoming)
        incoming.client_timeout = None
        try:
            return super().dispatch(incoming)
        finally:
            self._callers.answer(incoming)


def _check(message: Mapping[str, Any]) -> None:
    """See that a message is one of a call; oslo.messaging takes that for granted, and writes
    a traceback otherwise.

    :raises ExpectedException: it is not. Its sender is told why, if it waits.
    """
    version = message.get('version', '1.0')
    if not isinstance(message.get('method'), str):
        flaw = 'it names no method'
    elif not isinstance(version, str) or not VERSION.fullmatch(version):
        flaw = 'its version is none'
    elif not isinstance(message.get('args', {}), dict):
        flaw = 'its arguments have no names'
    else:
        return
    LOG.warning('Message refused: %s', flaw)
    try:
        raise BadRequest(flaw)
    except BadRequest:
        raise oslo_messaging.ExpectedException from None
