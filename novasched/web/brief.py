# SPDX-License-Identifier: Apache-2.0
"""waitress, for connections that do not last: imported where HTTP is served alone."""

from __future__ import annotations

import contextlib
import socket
import time
from collections import deque
from collections.abc import Mapping
from typing import Any

from waitress.adjustments import Adjustments
from waitress.channel import HTTPChannel
from waitress.server import TcpWSGIServer
from waitress.task import ThreadedTaskDispatcher, WSGITask

from novasched.web.routing import App


class OneAnswer(WSGITask):  # type: ignore[misc]
    """An answer after which the connection is closed."""

    def build_response_header(self) -> bytes:
        """See waitress's."""
        self.set_close_on_finish()
        header: bytes = super().build_response_header()
        return header


class BriefChannel(HTTPChannel):  # type: ignore[misc]
    """A connection for one request."""

    task_class = OneAnswer


class BriefServer(TcpWSGIServer):  # type: ignore[misc]
    """waitress's own closes a connection on which nothing happens, and takes no more when there
    are many. This one closes those on which too little happens, and the oldest for a new one;
    and it takes no more than so many in a second, whatever comes.

    :param longest: seconds that a connection lasts, but for a request that is being answered.
    :param most: so many connections there are.
    :param rate: so many begin within a second.
    """

    channel_class = BriefChannel

    def __init__(
        self,
        app: App,
        listens: socket.socket,
        longest: float,
        most: int,
        rate: int,
        limits: Mapping[str, Any],
    ) -> None:
        adjustments = Adjustments(sockets=[listens], **limits)
        dispatcher = ThreadedTaskDispatcher()
        dispatcher.set_thread_count(adjustments.threads)
        self._longest, self._most = longest, most
        self._taken: deque[float] = deque(maxlen=rate)
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

    def readable(self) -> bool:
        """See waitress's."""
        many = len(self._taken) == self._taken.maxlen
        may = not many or time.monotonic() - self._taken[0] >= 1.0
        return bool(super().readable()) and may

    def handle_accept(self) -> None:
        """See waitress's."""
        self._taken.append(time.monotonic())
        if len(self.active_channels) >= self._most and (idle := self._idle()):
            # Closed at its next turn: what is reported of its socket is not to be another's.
            min(idle, key=lambda channel: channel.creation_time).will_close = True
        super().handle_accept()

    def end(self) -> None:
        """Close all sockets; they are the loop's, whose thread alone may."""
        # An answer that ends at this moment wakes the loop, too. Then all is closed already.
        with contextlib.suppress(OSError):
            self.trigger.pull_trigger(lambda: self.asyncore.close_all(self._map))

    def _idle(self) -> list[Any]:
        """The connections on which no request is being answered."""
        every = self.active_channels.values()
        return [each for each in every if not each.requests and not each.will_close]
