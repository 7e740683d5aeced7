# SPDX-License-Identifier: Apache-2.0
"""The hosts as they were when they were first looked at, with the servers that went there
since."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from novasched import fitting
from novasched.model.host import Fleet, Host
from novasched.model.request import Flavor, Request
from novasched.model.selection import Selection
from novasched.model.settings import Settings
from novasched.ports import Hosts

ANYTHING = Request(flavor=Flavor())
"""A request that leaves no host out."""


@dataclass(frozen=True, slots=True)
class Settled:
    """A server on its host: its request with it in hand, and what was chosen for it."""

    request: Request
    chosen: Selection


class Landscape:
    """Implements :class:`novasched.ports.Hosts`: real hosts are read once, and once more where
    somebody turns out to look at the servers on them."""

    def __init__(self, hosts: Hosts, settings: Settings, moment: float) -> None:
        """:param moment: nothing older is used (monotonic seconds)."""
        self.settings = settings
        self._real = hosts
        self._asking = replace(ANYTHING, arrived=moment)
        self._read: tuple[bool, bool] | None = None
        self._hosts: dict[str, Host] = {}
        self._settled: list[Settled] = []

    @property
    def hosts(self) -> Sequence[Host]:
        """All of them as they are now.

        :raises DatabaseUnavailable: they cannot be read.
        """
        return list(self._known(instances=False, images=False).values())

    def prepare(self, moment: float) -> None:
        """See :class:`novasched.ports.Hosts`; there is nothing to read ahead."""

    def aimed(self, request: Request) -> Request:
        """See :class:`novasched.ports.Hosts`; asked of the databases."""
        return self._real.aimed(request)

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        instances: bool,
        images: bool = False,
    ) -> Fleet:
        """See :class:`novasched.ports.Hosts`."""
        hosts = self._known(instances, images)
        total = len(hosts)
        wanted = request.requested_destination
        if wanted and wanted.cell_uuid and not wanted.allow_cross_cell_move:
            hosts = {x: host for x, host in hosts.items() if host.cell_uuid == wanted.cell_uuid}
        return Fleet(hosts, total=total)

    def settle(self, servers: Sequence[Settled]) -> None:
        """Let servers that were placed run: from now on their hosts show them."""
        self._settled += servers
        self._put(servers)

    def _known(self, instances: bool, images: bool) -> dict[str, Host]:
        before = self._read or (False, False)
        wanted = (before[0] or instances, before[1] or images)
        if wanted != self._read:
            self._hosts = dict(self._real.read(None, self._asking, *wanted).hosts)
            self._read = wanted
            self._put(self._settled)
        return self._hosts

    def _put(self, servers: Sequence[Settled]) -> None:
        """A server that has been built is no I/O operation of its host's any more."""
        for each in servers:
            chosen = each.chosen
            if host := self._hosts.get(chosen.compute_node_uuid):
                after = fitting.after(
                    host, each.request, chosen.candidate, chosen.limits, self.settings
                )
                self._hosts[host.uuid] = replace(after, num_io_ops=host.num_io_ops)
