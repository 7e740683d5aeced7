# SPDX-License-Identifier: Apache-2.0
"""Weighers: which of the hosts that are left is best. This is their contract."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.model.settings import Settings


class Weigher:
    """Gives each host a number; the pipeline normalises and adds them up.

    A weigher keeps no state between calls, does no I/O and never logs.
    """

    multiplier: str
    """The option that scales the weigher, and the aggregate metadata key that
    overrides it for a host."""

    sign = 1.0
    """-1 where a greater value of the option means a lesser weight."""

    minval: float | None = None
    """The value that normalises to 0, instead of the least found."""

    maxval: float | None = None
    """The value that normalises to 1, instead of the greatest found."""

    once_per_host = False
    """Between the servers of one request the raw weight of a host changes with the host
    alone: it depends neither on the server in hand nor on where the others went, and nor
    does whether the weigher applies. Only hosts that have changed are weighed again."""

    scale_by_host = False
    """The scale depends on more than the aggregates that a host is in."""

    reads_instances = False
    """The weigher looks at ``host.instances``."""

    reads_images = False
    """It also looks at ``image_properties`` of these."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def name(self) -> str:
        """The name in ``weight_classes`` and in the log."""
        return type(self).__name__

    def for_request(self, memory: dict[str, Any]) -> Weigher:
        """The weigher for one request: itself, unless it keeps something between the calls
        for one request. ``memory`` is new for each request and common to all plugins."""
        return self

    @property
    def default_scale(self) -> float:
        """What the operator's option scales the weigher by, sign included."""
        option: float = getattr(self.settings, self.multiplier)
        return self.sign * option

    def scale(self, host: Host) -> float:
        """What the weigher is scaled by on a host: the least of its aggregates' numbers,
        or the option where they give none. Asked once for all hosts in the same aggregates.

        :raises ValueError: an aggregate gives what is no number.
        """
        values = host.metadata(self.multiplier) if host.aggregates else None
        return self.sign * min(map(float, values)) if values else self.default_scale

    def applies(self, request: Request) -> bool:
        """Whether the request can tell hosts apart by this, asked once per server. What
        does not apply weighs nothing and has nothing read for it."""
        return True

    def weigh(self, host: Host, request: Request) -> float:
        """The host's raw weight; more is better where the multiplier is positive."""
        raise NotImplementedError

    def weigh_all(self, hosts: Sequence[Host], request: Request) -> Sequence[float]:
        """The raw weights of all hosts, in their order, between ``minval`` and ``maxval``;
        for weighers that compare hosts."""
        raw = [self.weigh(host, request) for host in hosts]
        if (low := self.minval) is not None:
            raw = [low if value < low else value for value in raw]
        if (high := self.maxval) is not None:
            raw = [high if value > high else value for value in raw]
        return raw
