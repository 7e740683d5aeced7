# SPDX-License-Identifier: Apache-2.0
"""nova's RequestSpec, as plugins see it."""

from __future__ import annotations

from functools import cached_property
from types import SimpleNamespace
from typing import Any

from oslo_context.context import RequestContext

from novasched.plugins.nova_compat.views import Fields, View, mutable
from novasched.scheduler.model.request import Request

OF_FLAVOR = frozenset({'vcpus', 'memory_mb', 'root_gb', 'ephemeral_gb', 'swap'})
"""Attributes of the flavor that nova's RequestSpec has, too."""


class RequestSpecView(View):
    """A request, with the current instance in ``instance_uuid``."""

    def _read(self, value: Any, name: str) -> Any:
        return super()._read(value.flavor if name in OF_FLAVOR else value, name)

    def get_scheduler_hint(self, hint_name: str, default: Any = None) -> Any:
        """A hint: its only value, or the list of its values; the default if not given."""
        values = self.scheduler_hints.get(hint_name, default)
        return values[0] if isinstance(values, list) and len(values) == 1 else values

    @cached_property
    def _context(self) -> RequestContext:
        request: Request = self._value
        return RequestContext(
            user_id=request.user_id,
            project_id=request.project_id,
            request_id=request.request_id,
            global_request_id=request.global_request_id,
        )

    @cached_property
    def image(self) -> View | None:
        """nova's ImageMeta; its ``properties`` are attributes."""
        image = self._value.image
        if image is None:
            return None
        return View(image).override(properties=Fields(image.properties))

    @cached_property
    def instance_group(self) -> View | None:
        """nova's InstanceGroup: ``hosts`` and ``members`` are lists, ``rules`` numbers."""
        group = self._value.instance_group
        if group is None:
            return None
        return View(group).override(
            hosts=sorted(group.hosts),
            members=sorted(group.members),
            policies=[group.policy] if group.policy else [],
            rules={name: int(value) for name, value in group.rules.items()},
        )

    @cached_property
    def requested_destination(self) -> View | None:
        """nova's Destination: the cell by its UUID alone, alternatives joined by commas."""
        wanted = self._value.requested_destination
        if wanted is None:
            return None
        return View(wanted).override(
            cell=SimpleNamespace(uuid=wanted.cell_uuid) if wanted.cell_uuid else None,
            aggregates=[','.join(sorted(each)) for each in wanted.aggregates] or None,
        )

    @cached_property
    def retry(self) -> View | None:
        """nova's SchedulerRetries: ``hosts`` are compute nodes."""
        retry = self._value.retry
        if retry is None:
            return None
        nodes = [SimpleNamespace(host=host, hypervisor_hostname=x) for host, x in retry.hosts]
        return View(retry).override(hosts=nodes)

    @cached_property
    def pci_requests(self) -> SimpleNamespace:
        return SimpleNamespace(requests=mutable(self._value.pci_requests))

    @cached_property
    def security_groups(self) -> list[SimpleNamespace]:
        """nova's SecurityGroup objects, by name."""
        return [SimpleNamespace(name=each) for each in self._value.security_groups]

    @cached_property
    def network_metadata(self) -> SimpleNamespace | None:
        request: Request = self._value
        if request.physnets is None:
            return None
        return SimpleNamespace(physnets=set(request.physnets), tunneled=request.tunneled)

    @cached_property
    def request_level_params(self) -> SimpleNamespace:
        names = ('root_required', 'root_forbidden', 'same_subtree')
        return SimpleNamespace(**{name: getattr(self, name) for name in names})
