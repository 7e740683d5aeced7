# SPDX-License-Identifier: Apache-2.0
"""Between a message that has come and the method that it names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import oslo_messaging


class Dispatcher(oslo_messaging.RPCDispatcher):  # type: ignore[misc]
    """oslo.messaging's own, but for one thing.

    A caller that says for how long it waits is sent heartbeats meanwhile, by a thread that
    starts before the method is looked up and ends with it: without a method it would stay
    for ever. So nobody is said to wait for a method that does not exist.
    """

    def dispatch(self, incoming: Any) -> Any:
        """See oslo.messaging's.

        :raises NoSuchMethod: it has no such method.
        :raises UnsupportedVersion: it has none of that version.
        """
        if not self._has(incoming.message):
            incoming.client_timeout = None
        return super().dispatch(incoming)

    def _has(self, message: Mapping[str, Any]) -> bool:
        method = message.get('method')
        return isinstance(method, str) and any(
            hasattr(endpoint, method) and self.access_policy.is_allowed(endpoint, method)
            for endpoint in self.endpoints
            if self._serves(endpoint, message)
        )

    def _serves(self, endpoint: Any, message: Mapping[str, Any]) -> bool:
        target = getattr(endpoint, 'target', None) or self._default_target
        version = message.get('version', '1.0')
        return bool(
            self._is_namespace(target, message.get('namespace'))
            and self._is_compatible(target, version)
        )
