# SPDX-License-Identifier: Apache-2.0
"""Host aggregates, searched by metadata."""

from collections.abc import Collection, Iterable, Sequence
from typing import NamedTuple, overload

from novasched.scheduler.model.collation import EXACT, Collation
from novasched.scheduler.model.host import AVAILABILITY_ZONE, Aggregate

TENANT_KEY = 'filter_tenant_id'
TRAIT_KEY = 'trait:'
REQUIRED = 'required'


class _Entry(NamedTuple):
    """Metadata of an aggregate.

    :ivar compared_key: the metadata key as the collation compares keys.
    """

    key: str
    compared_key: str
    aggregate: Aggregate


class AggregateList(Sequence[Aggregate]):
    """All aggregates at a moment, searched by metadata as nova searches them.

    nova's prefilters leave comparisons of metadata to the API database, and the
    collation of the database decides which texts are equal. The filters compare in
    Python, with the metadata of :class:`Aggregate`.

    :ivar keys: the collation of metadata keys.
    :ivar values: the collation of metadata values.
    :raises DatabaseUnavailable: the database does not tell the key of a text.
    """

    def __init__(
        self,
        aggregates: Iterable[Aggregate] = (),
        keys: Collation = EXACT,
        values: Collation = EXACT,
    ) -> None:
        self._aggregates = tuple(aggregates)
        self.keys = keys
        self.values = values
        self._zone_key = keys.key(AVAILABILITY_ZONE)
        self._by_value: dict[str, list[_Entry]] = {}
        for aggregate in self._aggregates:
            for key, value in aggregate.metadata.items():
                entry = _Entry(key, keys.key(key), aggregate)
                self._by_value.setdefault(values.key(value), []).append(entry)

        self._isolating: list[_Entry] = []
        for entry in self._with_value(REQUIRED):
            if keys.starts_with(entry.key, TRAIT_KEY):
                self._isolating.append(entry)

    @overload
    def __getitem__(self, index: int) -> Aggregate: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[Aggregate]: ...

    def __getitem__(self, index: int | slice) -> Aggregate | Sequence[Aggregate]:
        return self._aggregates[index]

    def __len__(self) -> int:
        return len(self._aggregates)

    def in_zone(self, zone: str) -> list[Aggregate]:
        """The aggregates of an availability zone.

        :raises DatabaseUnavailable: see the class.
        """
        aggregates = []
        for entry in self._with_value(zone):
            if entry.compared_key == self._zone_key:
                aggregates.append(entry.aggregate)
        return aggregates

    def reserved_for(self, project: str | None) -> list[Aggregate]:
        """The aggregates reserved for a project by a metadata key with the prefix
        ``filter_tenant_id``.

        :raises DatabaseUnavailable: see the class.
        """
        if project is None:
            return []
        aggregates = []
        for entry in self._with_value(project):
            # Exact: nova lets the database compare the value, but not the prefix.
            if entry.key.startswith(TENANT_KEY):
                aggregates.append(entry.aggregate)
        return aggregates

    def isolated_from(self, traits: Collection[str]) -> list[Aggregate]:
        """The aggregates with a trait in the metadata (``trait:<name> = required``)
        that is none of these traits.

        :raises DatabaseUnavailable: see the class.
        """
        ignored_keys = {self.keys.key(TRAIT_KEY + trait) for trait in traits}
        aggregates = []
        for entry in self._isolating:
            if entry.compared_key not in ignored_keys:
                aggregates.append(entry.aggregate)
        return aggregates

    def _with_value(self, value: str) -> Sequence[_Entry]:
        """The metadata with a value."""
        return self._by_value.get(self.values.key(value), ())
