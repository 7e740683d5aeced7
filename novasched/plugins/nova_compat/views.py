# SPDX-License-Identifier: Apache-2.0
"""Views for plugins written for nova: our frozen values with the manners of nova's
objects.

A view is a mutable proxy and belongs to one request. It reads through to its value when
it is asked, and keeps what it has read, so that whatever a plugin changes is seen by
the plugins of that request, which share their views, and by nobody else.
"""

from collections.abc import Mapping
from dataclasses import is_dataclass
from functools import cached_property
from types import SimpleNamespace
from typing import Any

from oslo_context.context import RequestContext

NOT_READ = object()
OF_FLAVOR = frozenset({'vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap'})
"""Attributes of the flavor that nova's RequestSpec has, too."""


class NotKnown(AttributeError, NotImplementedError):
    """An attribute that nova's object would have or load, and this scheduler has not
    read. nova's own objects raise NotImplementedError for it, anything else
    AttributeError."""


class View:
    """A mutable proxy of a value: its attributes, and whatever else is set, as on any
    object."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def __getattr__(self, name: str) -> Any:
        """Called for what is not on the view yet."""
        if name.startswith('_'):
            raise AttributeError(name)
        found = self._read(self._value, name)
        if found is NOT_READ:
            raise NotKnown(f'{type(self).__name__}.{name} is not known to novasched')
        vars(self)[name] = copied = mutable(found)
        return copied

    def _read(self, value: Any, name: str) -> Any:
        return getattr(value, name, NOT_READ)

    def refresh(self, value: Any) -> None:
        """Take over a later state of the value: what has changed is read anew, what has
        not stays as the plugins left it."""
        if value is self._value:
            return
        for name in [*vars(self)]:
            if self._read(value, name) is not self._read(self._value, name):
                del vars(self)[name]
        self._value = value

    def override(self, **attributes: Any) -> 'View':
        """Set attributes in place of those of the value; answers the view itself."""
        vars(self).update(attributes)
        return self

    def obj_attr_is_set(self, attrname: str) -> bool:
        """True if there is such an attribute, be it None."""
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
    """A mapping whose keys are its attributes, as in nova's ImageMetaProps."""

    def _read(self, value: Any, name: str) -> Any:
        return value.get(name, NOT_READ)

    def to_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._value}


def mutable(value: Any) -> Any:
    """A mutable copy of a container, a view of a frozen value, anything else itself."""
    if isinstance(value, Mapping):
        return {key: mutable(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [mutable(each) for each in value]
    if isinstance(value, set | frozenset):
        return {mutable(each) for each in value}
    if is_dataclass(value):
        return View(value)
    return value


class RequestSpecView(View):
    """A request, with the current instance in ``instance_uuid``."""

    def _read(self, value: Any, name: str) -> Any:
        return super()._read(value.flavor if name in OF_FLAVOR else value, name)

    def get_scheduler_hint(self, hint_name: str, default: Any = None) -> Any:
        """A hint: its only value, or the list of its values; the default if not
        given."""
        values = self.scheduler_hints.get(hint_name, default)
        if isinstance(values, list) and len(values) == 1:
            return values[0]
        return values

    @cached_property
    def _context(self) -> RequestContext:
        names = ('user_id', 'project_id', 'request_id', 'global_request_id')
        return RequestContext(**{name: getattr(self._value, name) for name in names})

    @cached_property
    def image(self) -> View | None:
        """nova's ImageMeta; its ``properties`` are attributes."""
        image = self._value.image
        return image and View(image).override(properties=Fields(image.properties))

    @cached_property
    def instance_group(self) -> View | None:
        """nova's InstanceGroup: ``hosts`` and ``members`` are lists, ``rules``
        numbers."""
        group = self._value.instance_group
        return group and View(group).override(
            hosts=sorted(group.hosts),
            members=sorted(group.members),
            policies=[group.policy] if group.policy else [],
            rules={name: int(value) for name, value in group.rules.items()},
        )

    @cached_property
    def requested_destination(self) -> View | None:
        """nova's Destination: the cell by its UUID alone, alternatives joined by
        commas."""
        wanted = self._value.requested_destination
        return wanted and View(wanted).override(
            cell=SimpleNamespace(uuid=wanted.cell_uuid) if wanted.cell_uuid else None,
            aggregates=[','.join(sorted(each)) for each in wanted.aggregates] or None,
        )

    @cached_property
    def retry(self) -> View | None:
        """nova's SchedulerRetries: ``hosts`` are compute nodes."""
        retry = self._value.retry
        return retry and View(retry).override(
            hosts=[
                SimpleNamespace(host=host, hypervisor_hostname=x)
                for host, x in retry.hosts
            ]
        )

    @cached_property
    def pci_requests(self) -> SimpleNamespace:
        return SimpleNamespace(requests=mutable(self._value.pci_requests))

    @cached_property
    def security_groups(self) -> list[SimpleNamespace]:
        """nova's SecurityGroup objects, by name."""
        return [SimpleNamespace(name=each) for each in self._value.security_groups]

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
        names = ('root_required', 'root_forbidden', 'same_subtree')
        return SimpleNamespace(**{name: getattr(self, name) for name in names})
