# SPDX-License-Identifier: Apache-2.0
"""What has come from the broker and waits for a thread."""

from __future__ import annotations

import contextlib
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from amqp.spec import Basic
from oslo_messaging._drivers.amqpdriver import AMQPIncomingMessage, AMQPListener
from oslo_messaging._drivers.common import Timeout

from novasched.rpc.callers import Call, Callers, Moments

# Operators search for what this logger writes.
LOG = logging.getLogger('nova.scheduler.manager')

IDLE = 1.0  # seconds after which a listener looks whether it is to stop
FULL = 0.02  # and, when messages wait, whether there is a thread for the next
HELD_UP = 2.5  # seconds without a look that no listener takes unless it is kept from it
LONGEST = 5.0  # seconds in which the broker is to say that it has messages back
MILLISECONDS = 1000


@dataclass(slots=True)
class Counts:
    """What has become of messages.

    :ivar waits: the seconds that each waited which was begun, if anybody wants to know.
    """

    handled: int = 0
    ignored: int = 0
    dropped: int = 0
    waits: deque[float] | None = None


class Intake(AMQPListener):  # type: ignore[misc]
    """A listener that acknowledges a message when there is a thread for it.

    oslo.messaging's own acknowledges what it reads and reads what there is, however much it
    is. Here the broker sends no more than ``rabbit_qos_prefetch_count`` messages that are not
    acknowledged, for each queue, and has what is left for other schedulers. Those that wait
    here are still the broker's: it gives them to others when this process stops or dies.

    Everything but the heartbeats happens in the thread that polls, since a channel is not for
    several. Acknowledged is before begun, so that none is begun twice.
    """

    message_cls = AMQPIncomingMessage

    def __init__(
        self,
        driver: Any,
        conn: Any,
        callers: Callers,
        has_room: Callable[[], bool],
        ignored: Callable[[], Collection[str]],
        counts: Counts | None = None,
    ) -> None:
        """:param has_room: whether a thread is free.
        :param ignored: the casts that nobody wants to hear of now.
        :param counts: is kept by this one alone.
        """
        super().__init__(driver, conn)
        self._callers = callers
        self._has_room = has_room
        self._ignored = ignored
        self._counts = counts or Counts()
        self._waiting: deque[Call] = deque()
        self._lost: dict[str, Moments] = {}
        self._tags = conn._new_tags
        self._looked = math.inf
        self._returning = False
        broker = conn.connection.connection  # oslo.messaging's is around kombu's
        self._errors = (*broker.connection_errors, *broker.channel_errors)

    def __call__(self, message: Any) -> None:
        """A message has come."""
        if self._returning:
            return  # it is the broker's again, and what it was to be acknowledged by is no more
        self._forget_lost()
        if message.get('_msg_id') is None and message.get('method') in self._ignored():
            message.acknowledge()
            self._counts.ignored += 1
            return
        lifetime = _lifetime(message)
        super().__call__(message)
        if not self.incoming:  # it has been begun, and the broker did not hear of that
            message.acknowledge()
            return
        incoming = self.incoming.pop()
        before = self._lost.pop(incoming.msg_id, None)
        self._waiting.append(self._callers.add(incoming, lifetime, before))

    @property
    def waiting(self) -> int:
        """How many messages wait."""
        return len(self._waiting)

    def poll(
        self,
        timeout: float | None = None,
        batch_size: int = 1,
        batch_timeout: float | None = None,
    ) -> list[Any]:
        """The next message, as soon as there is a thread for it; none at the end."""
        while not self._shutdown.is_set():
            self._look_up()
            if (incoming := self._next()) is not None:
                return [incoming]
            # Only the socket can be waited for, so whether there is room is asked often.
            with contextlib.suppress(Timeout):
                self.conn.consume(timeout=FULL if self._waiting else IDLE)
            self._forget_lost()
        self._shutoff.set()
        return []

    def stop(self) -> None:
        """Leave the queues, and all that is not begun, to others."""
        self._shutdown.set()
        self.conn.stop_consuming()
        self._shutoff.wait()
        try:
            for consumer, tag in list(self.conn._consumers.items()):
                consumer.cancel(tag)
        except self._errors as error:
            # It notices by itself when the connection is closed at last.
            LOG.warning('The broker cannot be told that this consumer stops: %s', error)
        self._give_back()

    def _look_up(self) -> None:
        """After a time in which this process was kept from its work, give back what has come.

        It may have expired meanwhile. The broker, which knows, drops that, and sends the rest
        once more.
        """
        now = time.monotonic()
        if now - self._looked > HELD_UP:
            self._give_back()
            now = time.monotonic()
        self._looked = now

    def _give_back(self) -> None:
        """Let the broker have all that is not begun; nothing of it comes after this unless it
        is sent anew."""
        channel = self.conn.channel
        self._returning = True
        try:
            if channel is not None:
                channel.basic_recover(requeue=True)
                if hasattr(channel, 'wait'):  # kombu's in-memory transport has no broker
                    channel.wait(Basic.RecoverOk, timeout=LONGEST)
        except self._errors as error:
            LOG.warning('What waits goes back to the broker with the connection: %s', error)
        finally:
            self._returning = False
        self._forget()

    def _next(self) -> Any:
        """The message that has waited longest, if a thread is free."""
        while self._waiting:
            call = self._waiting[0]
            useless = self._useless(call)
            if not useless and not self._has_room():
                break
            if not self._acknowledged(call):
                break
            self._waiting.popleft()
            if not useless:
                self._count(call)
                return call.incoming
            self._counts.dropped += 1
            self._callers.forget(call.incoming)
            LOG.info(
                'Request %s for instances %s is dropped, since %s; it has waited here for %.0f s',
                call.incoming.ctxt.get('request_id'),
                _uuids(call.incoming.message),
                useless,
                time.monotonic() - call.came,
            )
        return None

    def _count(self, call: Call) -> None:
        """It is going to be begun."""
        if not call.incoming.reply_q:  # a cast
            self._counts.handled += 1
        if self._counts.waits is not None:
            self._counts.waits.append(time.monotonic() - call.came)

    def _useless(self, call: Call) -> str:
        """Why nobody would read the answer; empty if somebody may."""
        if call.given_up(time.monotonic()):
            return 'its caller has given up'
        answers = self._obsolete_reply_queues
        if not answers.reply_q_valid(call.incoming.reply_q, call.incoming.msg_id):
            return 'the queue for its answer has been gone for long'
        return ''

    def _acknowledged(self, call: Call) -> bool:
        try:
            call.incoming.message.acknowledge()
        except Exception as error:  # whatever it is, the connection is not to be used further
            LOG.warning('What waits goes back to the broker: %s', error)
            self._forget()
            return False
        self.msg_id_cache.add(call.incoming.unique_id)
        return True

    def _forget_lost(self) -> None:
        """After a lost connection or channel the broker sends all anew that waits here. What
        had come before cannot be acknowledged: its tags may be those of others now."""
        if self.conn._new_tags is not self._tags:
            self._tags = self.conn._new_tags
            self._forget()

    def _forget(self) -> None:
        for call in self._waiting:
            self._callers.forget(call.incoming)
        self._lost = {call.incoming.msg_id: (call.came, call.heard) for call in self._waiting}
        self._waiting.clear()


def _lifetime(message: Any) -> float:
    """Seconds that the caller waits at most, counted from when it has sent the message."""
    try:
        return int(message._raw_message.properties['expiration']) / MILLISECONDS
    except (KeyError, TypeError, ValueError):
        return math.inf


def _uuids(message: Any) -> Any:
    arguments = message.get('args')
    return arguments.get('instance_uuids') if isinstance(arguments, dict) else None
