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
    """waitress's own closes a connection on which nothing happens, and takes no more when there
    are many. This one closes those on which too little happens, and the oldest for a new one.

    :param longest: seconds that a connection lasts, but for a request that is being answered.
    :param most: so many connections there are.
    """

    def __init__(
        self,
        app: App,
        listens: socket.socket,
        longest: float,
        most: int,
        limits: Mapping[str, Any],
    ) -> None:
        adjustments = Adjustments(sockets=[listens], **limits)
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(adjustments.threads)
        self._longest, self._most = longest, most
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
        for channel in self._idle():
            if channel.creation_time < now - self._longest:
                channel.will_close = True

    def handle_accept(self) -> None:
        """See waitress's."""
        if len(self.active_channels) >= self._most and (idle := self._idle()):
            # Closed at its next turn: what is reported of its socket is not to be another's.
            min(idle, key=lambda channel: channel.creation_time).will_close = True
        super().handle_accept()

    def _idle(self) -> list[Any]:
        """The connections on which no request is being answered."""
        every = self.active_channels.values()
        return [each for each in every if not each.requests and not each.will_close]
