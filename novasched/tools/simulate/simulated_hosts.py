# SPDX-License-Identifier: Apache-2.0
"""Hosts in memory, with the simulated instances."""

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace

from novasched.conf.settings import Settings
from novasched.scheduler.memory import HostCache
from novasched.scheduler.model.basis import FRESH, Basis
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.changes import ChangeLog
from novasched.scheduler.model.host import Host, HostSnapshot, HostView, Selection
from novasched.scheduler.model.numa import Fit
from novasched.scheduler.model.request import Request
from novasched.scheduler.ports import NEEDS_NOTHING, Hosts, Needs


@dataclass(frozen=True, slots=True)
class PlacedInstance:
    """A simulated instance on its host.

    :ivar request: the request of this instance.
    :ivar fit: its NUMA cells and CPUs; None without a topology.
    """

    request: Request
    selection: Selection
    fit: Fit | None


class SimulatedHosts(HostCache):
    """The hosts in memory, with the simulated instances.

    The hosts are read once, and once more if a plugin needs their instances. Simulated
    instances are built at once.
    """

    def __init__(
        self,
        source: Hosts,
        settings: Settings,
        moment: float,
        has_all_providers: bool = False,
    ) -> None:
        """:param moment: time of the oldest usable data, in monotonic seconds.
        :param has_all_providers: the providers of all hosts are in memory, so that no
            query is limited to the provider of a requested host.
        """
        super().__init__(source, settings, Basis(began=moment, read_since=moment))
        self._has_all_providers = has_all_providers
        self._without_simulated: Mapping[str, Host] = {}
        self._changes = ChangeLog()
        # By compute node UUID and instance UUID.
        self._placed: dict[str, dict[Hashable, PlacedInstance]] = defaultdict(dict)

    def refresh(
        self, instances: bool = False, images: bool = False
    ) -> Mapping[str, Host]:
        """Read all hosts, and place the simulated instances again."""
        self._without_simulated = dict(super().refresh(instances, images))
        self._changes = ChangeLog().with_step(())
        for placed_on_host in self._placed.values():
            for key, placed in placed_on_host.items():
                fit = super().place(placed.request, placed.selection)
                placed_on_host[key] = replace(placed, fit=fit)
        return self.hosts

    def with_requested_destination(self, request: Request) -> Request:
        if self._has_all_providers:
            return request
        return super().with_requested_destination(request)

    def is_on_forced_host(self, request: Request) -> bool:
        """True if the request forces a host: a recorded rebuild was checked when it was
        decided, and the instance may be gone by now."""
        return bool(request.force_hosts or request.force_nodes)

    def read(
        self,
        uuids: Collection[str] | None,
        request: Request,
        needs: Needs = NEEDS_NOTHING,
        basis: Basis = FRESH,
    ) -> HostSnapshot:
        """Read all hosts: later snapshots know the changes since."""
        snapshot = super().read(None, request, needs, basis)
        if len(snapshot.hosts) < snapshot.total:
            return snapshot
        return replace(snapshot, view=HostView(snapshot.hosts, self._changes))

    def place(self, request: Request, selection: Selection) -> Fit | None:
        """See :meth:`MemoryHosts.place`."""
        fit = super().place(request, selection)
        # Instances without a UUID stay until the end.
        key = request.instance_uuid or object()
        node_uuid = selection.compute_node_uuid
        self._placed[node_uuid][key] = PlacedInstance(request, selection, fit)
        self._changes = self._changes.with_step([node_uuid])
        return fit

    def remove(self, instance_uuid: str, node_uuid: str) -> Request:
        """Delete a simulated instance: the host is as if the instance had never come.
        The other instances keep their NUMA cells and CPUs.

        :returns: the request of the instance.
        """
        others = self._placed[node_uuid]
        removed = others.pop(instance_uuid)
        host = self._without_simulated.get(node_uuid)
        if host is None:
            # The compute node was deleted between two readings.
            return removed.request
        for placed in others.values():
            candidate = placed.selection.candidate
            host = self._with_instance(host, placed.request, candidate, placed.fit)
        self.put(host)
        return removed.request

    def fit_of(self, instance_uuid: str, node_uuid: str) -> Fit | None:
        """The NUMA cells and CPUs of a simulated instance; None without a topology."""
        return self._placed[node_uuid][instance_uuid].fit

    def forget(self, instance_uuid: str, node_uuid: str) -> None:
        """Forget a simulated instance, which its host does not have any more."""
        self._placed[node_uuid].pop(instance_uuid, None)

    def put(self, *hosts: Host) -> None:
        """Replace hosts."""
        uuids = [host.uuid for host in hosts]
        self.hosts.update(zip(uuids, hosts, strict=True))
        self._changes = self._changes.with_step(uuids)

    @contextmanager
    def trial(self) -> Iterator[None]:
        """Forget at the end the instances placed within the block."""
        hosts = dict(self.all())
        without_simulated = self._without_simulated
        detail = self._detail
        placed = {node: dict(on_host) for node, on_host in self._placed.items()}
        try:
            yield
        finally:
            self.hosts = hosts
            self._changes = ChangeLog().with_step(())
            self._without_simulated = without_simulated
            self._detail = detail
            self._placed = defaultdict(dict, placed)

    def _with_instance(
        self, host: Host, request: Request, candidate: Candidate | None, fit: Fit | None
    ) -> Host:
        # A new instance counts as an I/O operation until it is built.
        after = super()._with_instance(host, request, candidate, fit)
        return replace(after, num_io_ops=host.num_io_ops)
