# SPDX-License-Identifier: Apache-2.0
from collections.abc import Callable, Collection, Sequence

from novasched.conf.settings import Settings
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.weighers import Weigher


class RefusingHostWeigher(Weigher):
    """Put hosts that refuse again and again behind all others. It is there where
    ``[novasched] refusing_host_limit`` is set, whatever ``weight_classes`` says."""

    multiplier = ''
    default_scale = -1e9  # more than those of all other weighers together

    def __init__(
        self, settings: Settings, refusing: Callable[[], Collection[tuple[str, str]]]
    ) -> None:
        """``refusing`` answers their names and those of their nodes."""
        super().__init__(settings)
        self._refusing = refusing

    def applies(self, request: Request) -> bool:
        return bool(self._refusing())

    def weigh_all(self, hosts: Sequence[Host], request: Request) -> list[float]:
        refusing = self._refusing()
        names = {name for name, _ in refusing}
        return [float(host.host in names and host.key in refusing) for host in hosts]
