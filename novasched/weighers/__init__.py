# SPDX-License-Identifier: Apache-2.0
"""Weighers: which of the hosts that are left is best. This is their contract."""

from __future__ import annotations

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

    reads_instances = False
    """The weigher looks at ``host.instances``."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def name(self) -> str:
        """The name in ``weight_classes`` and in the log."""
        return type(self).__name__

    def weigh(self, host: Host, request: Request) -> float:
        """The host's raw weight; more is better where the multiplier is positive."""
        raise NotImplementedError
