# SPDX-License-Identifier: Apache-2.0
"""PCI devices: requests of instances and pools of hosts."""

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass, field

PHYSICAL = 'type-PF'
VIRTUAL = 'type-VF'
VDPA = 'vdpa'


@dataclass(frozen=True, slots=True)
class PciRequest:
    """A request for ``count`` devices.

    Each device matches any of the device properties in ``spec``.
    """

    count: int
    spec: tuple[Mapping[str, str | None], ...] = ()
    alias_name: str | None = None
    request_id: str | None = None
    requester_id: str | None = None
    numa_policy: str | None = None
    is_new: bool = False

    @property
    def is_for_port(self) -> bool:
        """True for the request of a Neutron port; requests of flavors have an alias."""
        return self.alias_name is None

    @property
    def label(self) -> str:
        """A name for the log."""
        return self.alias_name or self.request_id or 'request'


@dataclass(frozen=True, slots=True)
class Pool:
    """``count`` free devices with equal properties.

    :ivar numa_node: the host cell of the devices, None if unknown.
    :ivar tags: further properties: ``dev_type``, ``physical_network``,
        ``remote_managed``, ``address`` (of the parent device, if there is a parent),
        ``rp_uuid`` (the resource provider) and properties that the operator adds.
    """

    product_id: str
    vendor_id: str
    count: int
    numa_node: int | None = None
    tags: Mapping[str, str | None] = field(default_factory=dict)

    def __hash__(self) -> int:
        # The tags cannot be hashed. Equal pools have equal counts.
        return self.count

    def get(self, name: str) -> str | int | None:
        """Return a property by its name in the spec of a request, None without it."""
        if name in self.tags:
            return self.tags[name]
        if name not in _PROPERTIES:
            return None

        value: str | int | None = getattr(self, name)
        return value


_PROPERTIES = frozenset(('product_id', 'vendor_id', 'numa_node', 'count'))

Pools = tuple[Pool, ...]
"""The free devices of a host, in the order in which nova-compute takes from them."""

DeviceChoice = Mapping[str, Mapping[str, int]]
"""By id of a PCI request, the resource providers whose devices the request may get,
each with a rank: devices of a lower rank are nearer to the guest."""


def no_choices() -> Iterable[DeviceChoice]:
    """The choices of devices of a host, if unknown."""
    return ()


@dataclass(frozen=True, slots=True)
class HostDevices:
    """The PCI devices of a host in Placement, as far as they restrict the candidates.

    :ivar places: the properties of the devices, by resource provider. Devices with
        different properties are not interchangeable.
    :ivar cells: equal for hosts with equal NUMA cells.
    :ivar choices: returns, for each choice of NUMA cells that the guest fits, the
        devices that the guest may get there; the choices of hosts with equal places and
        cells are equal.
    """

    places: Mapping[str, Hashable] = field(default_factory=dict)
    cells: Hashable = None
    choices: Callable[[], Iterable[DeviceChoice]] = no_choices
