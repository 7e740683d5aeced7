# SPDX-License-Identifier: Apache-2.0
"""Between a message that has come and the method that it names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import oslo_messaging

from novasched.rpc.callers import Callers


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
        """
        self._callers.add(incoming)
        incoming.client_timeout = None
        try:
            return super().dispatch(incoming)
        finally:
            self._callers.answer(incoming)
