# SPDX-License-Identifier: Apache-2.0
"""waitress, for connections that do not last: imported where HTTP is served alone."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from typing import Any

from waitress.adjustments import Adjustments
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher

from novasched.web.routing import App


class BriefServer(TcpWSGIServer):  # type: ignore[misc]
    """waitress's own closes a connection on which nothing happens; this one closes a
    connection on which too little does, too.

    :param longest: seconds that a connection lasts, but for a request that is being answered.
    """

    def __init__(
        self, app: App, listens: socket.socket, longest: float, limits: Mapping[str, Any]
    ) -> None:
        adjustments = Adjustments(sockets=[listens], **limits)
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(adjustments.threads)
        self._longest = longest
        super().__init__(
            app,
            _sock=listens,
            dispatcher=dispatcher,
            adj=adjustments,
            sockinfo=(listens.family, listens.type, listens.proto, listens.getsockname()),
            bind_socket=False,
        )

    def maintenance(self, now: float) -> None:
        """See waitress's."""
        super().maintenance(now)
        for channel in self.active_channels.values():
            if not channel.requests and channel.creation_time < now - self._longest:
                channel.will_close = True
