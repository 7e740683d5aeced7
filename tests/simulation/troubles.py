# SPDX-License-Identifier: Apache-2.0
"""The troubles that keep schedulers from knowing the simulated cloud. Faults note them,
and checks allow for them."""

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.simulation.loop import Loop

HEARD_S = 15.0
"""Seconds after a trouble in which schedulers hear each other again."""


@dataclass
class Troubles:
    """The troubles of a day.

    :ivar unheard_at: when schedulers may last not have heard each other; infinite while
        they may not hear each other.
    :ivar alone_at: when a scheduler may last have decided without hearing its peers;
        infinite while this may happen. A scheduler waits for its peers while its
        connections are broken, though not for long.
    :ivar lost_at: when requests to Placement may last have got lost, or may last have
        found no Placement; infinite while requests may get lost.
    :ivar databases_well_since: when the last trouble of a database has ended.
    """

    loop: Loop
    unheard_at: float = 0.0
    alone_at: float = 0.0
    lost_at: float = 0.0
    databases_well_since: float = 0.0
    _reasons: Counter[str] = field(default_factory=Counter)
    _usable_since: dict[str, float] = field(default_factory=dict)

    def note_unheard(self) -> None:
        """Note that schedulers may not hear each other now, and do not know it."""
        self.unheard_at = max(self.unheard_at, self.loop.now)
        self.alone_at = max(self.alone_at, self.loop.now)

    def note_broken_connections(self) -> None:
        """Note that schedulers know that they do not hear each other now."""
        if self.unheard_at + HEARD_S > self.loop.now:
            # They may not have met since the last break, from which on they wait.
            self.note_unheard()
        self.unheard_at = max(self.unheard_at, self.loop.now)

    def begin(self, hosts: Iterable[str]) -> None:
        """Note a reason for which schedulers cannot see that hosts work, or have
        room."""
        self._reasons.update(hosts)

    def end(self, hosts: Iterable[str], seconds: float = 0.0) -> None:
        """Note that a reason ends in some seconds."""
        for host in hosts:
            self._reasons[host] -= 1
            moment = self.loop.now + seconds
            self._usable_since[host] = max(self._usable_since.get(host, 0.0), moment)

    def usable_since(self, host: str) -> float:
        """Since when schedulers can see that a host works and has room; infinite while
        there is a reason against it."""
        if self._reasons[host]:
            return math.inf
        return self._usable_since.get(host, 0.0)
