# SPDX-License-Identifier: Apache-2.0
"""An allocation candidate: one way in which Placement can serve a request."""

from __future__ import annotations

import msgspec

from novasched.errors import PlacementUnavailable


class Candidate(msgspec.Struct, frozen=True, gc=False):
    """Placement's allocation request (microversion 1.36), decoded as far as needed.

    ``allocations`` maps the UUID of each provider that gives something to the text of
    what it gives; ``mappings`` is the text that says which providers serve which
    request group. Both texts stay as Placement wrote them, since most candidates
    are never claimed.
    """

    allocations: dict[str, msgspec.Raw]
    mappings: msgspec.Raw = msgspec.Raw(b'{}')

    def apart(self) -> Candidate:
        """The same with texts of its own. What was read of an answer are pieces of it, each
        of which keeps the whole in memory."""
        own = {rp: text.copy() for rp, text in self.allocations.items()}
        return Candidate(own, self.mappings.copy())

    def resources(self) -> dict[str, dict[str, int]]:
        """What is taken: provider UUID to resource class to amount.

        :raises PlacementUnavailable: Placement wrote something else.
        """
        decode = msgspec.json.Decoder(_Resources).decode
        try:
            return {rp: decode(text).resources for rp, text in self.allocations.items()}
        except (ValueError, RecursionError) as error:
            raise PlacementUnavailable(f'a candidate cannot be read: {error}') from None

    def providers_by_group(self) -> dict[str, list[str]]:
        """Request group suffix ('' is the unsuffixed group) to provider UUIDs."""
        try:
            return msgspec.json.decode(self.mappings, type=dict[str, list[str]])
        except (ValueError, RecursionError) as error:
            raise PlacementUnavailable(f'a candidate cannot be read: {error}') from None

    def body(self) -> str:
        """The JSON text that conductor keeps to claim an alternate with."""
        return msgspec.json.encode(self).decode()

    def allocations_alone(self) -> str:
        """The same without mappings, as Placement's microversions before 1.34 want it."""
        return msgspec.json.encode({'allocations': self.allocations}).decode()


class _Resources(msgspec.Struct):
    resources: dict[str, int]
