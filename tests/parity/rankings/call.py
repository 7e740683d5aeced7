# SPDX-License-Identifier: Apache-2.0
"""A call of select_destinations, while themes add to it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.lab.descriptions import Case, wire
from tests.parity.dice import Dice, put
from tests.parity.rankings.world import Server, World


@dataclass
class Call:
    """One call of select_destinations, in the words of descriptions.py."""

    request: Case
    instance_uuids: list[str] | None
    return_objects: bool = True
    return_alternates: bool = True
    moved: Server | None = None
    """The server that exists already: it is moved or rebuilt."""
    themes: list[str] = field(default_factory=list)

    def arguments(self, cells: Mapping[str, Case]) -> dict[str, Any]:
        """What goes over the wire; a cell, here its UUID, is there the whole mapping."""
        request = self.request
        wanted = request.get('requested_destination')
        if wanted and 'cell' in wanted:
            whole = {**wanted, 'cell': cells[wanted['cell']['uuid']]}
            request = {**request, 'requested_destination': whole}
        return {
            'spec_obj': wire('RequestSpec', request),
            'instance_uuids': self.instance_uuids,
            'return_objects': self.return_objects,
            'return_alternates': self.return_alternates,
        }

    @property
    def claims(self) -> bool:
        """Whether anything is claimed; callers that want nothing claimed know no groups."""
        rebuilt = self.request['scheduler_hints'].get('_nova_check_type') == ['rebuild']
        return self.instance_uuids is not None and not rebuilt

    def put(self, *path: str, **values: Any) -> None:
        """Set fields of the request, or of what the path leads to in it."""
        put(self.request, *path, **values)

    def hint(self, **values: Any) -> None:
        self.put('scheduler_hints', **values)

    def extra_specs(self, specs: Mapping[str, str]) -> None:
        self.put('flavor', 'extra_specs', **specs)

    def image_properties(self, **values: Any) -> None:
        self.put('image', 'properties', **values)


Theme = Callable[[Dice, World, Call], None]
"""Adds one matter to a call."""
