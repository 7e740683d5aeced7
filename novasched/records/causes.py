# SPDX-License-Identifier: Apache-2.0
"""Why not a host: what there was against each single one, in columns.

It is much text, and asked of one host in thousands. So what is kept is no more than the lists
that the decision had in hand, and sentences are made for the one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import msgspec

from novasched.records.reasons import all_told, counted

DETAILED = 100
"""They are kept of so many of the newest decisions."""


@dataclass(frozen=True, slots=True)
class Names:
    """Hosts, and the nodes on them unless they have the same names."""

    hosts: Sequence[str] = ()
    nodes: Sequence[str] = ()

    @classmethod
    def of(cls, hosts: Sequence[str], nodes: Sequence[str]) -> Names:
        """These, in short."""
        return cls(hosts, () if hosts == nodes else nodes)

    def places(self, name: str) -> Iterator[tuple[int, str]]:
        """Where a host or node stands, and which node it is if that is not plain."""
        nodes = self.nodes or self.hosts
        for place, (host, node) in enumerate(zip(self.hosts, nodes, strict=True)):
            if name in (host, node):
                same = host.partition('.')[0] == node.partition('.')[0]
                yield place, '' if same else f' ({node})'


@dataclass(frozen=True, slots=True)
class Dropped:
    """The hosts that did not pass a stage: ``which`` of the reasons each had."""

    stage: str
    names: Names
    reasons: Sequence[str]
    which: Sequence[int]

    @classmethod
    def of(cls, stage: str, names: Names, reasons: Sequence[str]) -> Dropped:
        """Them, with a reason for each."""
        texts = all_told(counted(reasons))
        if len(texts) == 1:
            return cls(stage, names, [*texts.values()], [0] * len(reasons))
        number = {reason: place for place, reason in enumerate(texts)}
        return cls(stage, names, [*texts.values()], [number[reason] for reason in reasons])


@dataclass(frozen=True, slots=True)
class Causes:
    """All that dropped out, and how the others stood for the first server: best first."""

    dropped: Sequence[Dropped] = ()
    ranked: Names = field(default_factory=Names)

    def against(self, name: str) -> list[str]:
        """What there was against a host, or against each of its nodes."""
        return [
            *(
                f'{each.stage}: {each.reasons[each.which[place]]}{node}'
                for each in self.dropped
                for place, node in each.names.places(name)
            ),
            *(
                f'fit, number {place + 1} of {len(self.ranked.hosts)} by weight{node}'
                for place, node in self.ranked.places(name)
            ),
        ]


_CAUSES = msgspec.json.Decoder(Causes)


def from_json(text: bytes | str) -> Causes:
    """The causes in a text.

    :raises ValueError: there are none in it.
    """
    return _CAUSES.decode(text)
