# SPDX-License-Identifier: Apache-2.0
"""Views of requests and hosts with the attributes of nova's objects.

A view is a mutable proxy of a frozen value, and belongs to one request. An attribute is
copied from the value on first use and kept on the view. Plugins of the same request
share views, so that a plugin sees the attributes that earlier plugins have changed;
plugins of another request do not.
"""

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from novasched.plugins.nova_compat.context import context_of

NOT_READ = object()
FLAVOR_ATTRIBUTES = frozenset({'vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap'})
"""The attributes of the flavor that nova's RequestSpec also has."""


class NotKnown(AttributeError, NotImplementedError):
    """An attribute that a view does not have.

    nova's objects raise NotImplementedError for an attribute that nova cannot load,
    and AttributeError for an unknown attribute. Plugins may expect either error.
    """


class View:
    """A mutable proxy of a value, with the attributes of the value."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __getattr__(self, name: str) -> Any:
        """Copy an attribute of the value. Python calls the method for names that are
        not on the view yet.

        :raises NotKnown: the value has no such attribute.
        """
        # copy.copy() looks for special methods before it sets ``_value``.
        if name.startswith('_'):
            raise AttributeError(name)
        attribute = self._read(self._value, name)
        if attribute is NOT_READ:
            raise NotKnown(f'{type(self).__name__}.{name} is not known to novasched')

        copied = mutable(attribute)
        vars(self)[name] = copied
        return copied

    def _read(self, value: Any, name: str) -> Any:
        return getattr(value, name, NOT_READ)

    def refresh(self, value: Any) -> None:
        """Replace the value by a later state of the value.

        Attributes that differ are copied again on their next use. All remaining
        attributes stay as the plugins left them.
        """
        if value is self._value:
            return

        # Compared by identity: frozen values share the parts that have not changed.
        for name in [*vars(self)]:
            if self._read(value, name) is not self._read(self._value, name):
                del vars(self)[name]
        self._value = value

    def override(self, **attributes: Any) -> 'View':
        """Set attributes in place of attributes of the value, and return the view."""
        vars(self).update(attributes)
        return self

    def obj_attr_is_set(self, attrname: str) -> bool:
        """True if the view has the attribute, even with the value ``None``."""
        return hasattr(self, attrname)

    def __contains__(self, name: str) -> bool:
        return self.obj_attr_is_set(name)

    def get(self, name: str, default: Any = None) -> Any:
        return getattr(self, name, default)

    def __getitem__(self, name: str) -> Any:
        try:
            return getattr(self, name)
        except NotKnown as error:
            raise KeyError(name) from error

    def __repr__(self) -> str:
        return str(self._value)


class Fields(View):
    """A view of a mapping. The keys are attributes, as in nova's ImageMetaProps."""

    def _read(self, value: Any, name: str) -> Any:
        return value.get(name, NOT_READ)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._value}


def mutable(value: Any) -> Any:
    """A mutable copy of a container, a view of a dataclass, or the value itself."""
    if isinstance(value, Mapping):
        return {key: mutable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return list(map(mutable, value))
    if isinstance(value, set | frozenset):
        return set(map(mutable, value))
    if is_dataclass(value):
        return View(value)
    return value


class RequestSpecView(View):
    """nova's RequestSpec. ``instance_uuid`` is the current instance."""

    def _read(self, value: Any, name: str) -> Any:
        if name in FLAVOR_ATTRIBUTES:
            value = value.flavor
        return super()._read(value, name)

    def get_scheduler_hint(self, hint_name: str, default: Any = None) -> Any:
        """A scheduler hint: the only value, or the list of several values."""
        values = self.scheduler_hints.get(hint_name, default)
        if isinstance(values, list) and len(values) == 1:
            return values[0]
        return values

    @cached_property
    def _context(self) -> Any:
        """nova's RequestContext, with the token of the caller."""
        return context_of(self._value)

    @cached_property
    def image(self) -> View | None:
        """nova's ImageMeta, with ``properties`` as an object with attributes."""
        image = self._value.image
        if image is None:
            return None
        return View(image).override(properties=Fields(image.properties))

    @cached_property
    def instance_group(self) -> View | None:
        """nova's InstanceGroup: ``hosts`` and ``members`` are lists, ``rules``
        numbers."""
        group = self._value.instance_group
        if group is None:
            return None

        policies = []
        if group.policy:
            policies.append(group.policy)
        return View(group).override(
            hosts=sorted(group.hosts),
            members=sorted(group.members),
            policies=policies,
            rules={name: int(value) for name, value in group.rules.items()},
        )

    @cached_property
    def requested_destination(self) -> View | None:
        """nova's Destination. ``cell`` has only a ``uuid``; each item of
        ``aggregates`` is a list of alternatives, separated by commas."""
        destination = self._value.requested_destination
        if destination is None:
            return None

        cell = None
        if destination.cell_uuid:
            cell = SimpleNamespace(uuid=destination.cell_uuid)
        aggregates = []
        for alternatives in destination.aggregates:
            aggregates.append(','.join(sorted(alternatives)))
        return View(destination).override(cell=cell, aggregates=aggregates or None)

    @cached_property
    def retry(self) -> View | None:
        """nova's SchedulerRetries: ``hosts`` are compute nodes."""
        retry = self._value.retry
        if retry is None:
            return None

        nodes = []
        for host, node in retry.hosts:
            nodes.append(SimpleNamespace(host=host, hypervisor_hostname=node))
        return View(retry).override(hosts=nodes)

    @cached_property
    def pci_requests(self) -> SimpleNamespace:
        return SimpleNamespace(requests=mutable(self._value.pci_requests))

    @cached_property
    def security_groups(self) -> list[SimpleNamespace]:
        """nova's SecurityGroup objects, with names only."""
        return [SimpleNamespace(name=name) for name in self._value.security_groups]

    @cached_property
    def network_metadata(self) -> SimpleNamespace | None:
        request = self._value
        if request.physnets is None:
            return None
        return SimpleNamespace(
            physnets=set(request.physnets), tunneled=request.tunneled
        )

    @cached_property
    def request_level_params(self) -> SimpleNamespace:
        return SimpleNamespace(
            root_required=self.root_required,
            root_forbidden=self.root_forbidden,
            same_subtree=self.same_subtree,
        )
