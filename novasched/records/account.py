# SPDX-License-Identifier: Apache-2.0
"""The account of one request, kept while it is decided.

What is called here runs between the steps of a decision: it notes names, reasons and
numbers, and leaves what takes time to :meth:`Account.record`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import NamedTuple, TypeAlias

from novasched.errors import NoValidHost, NovaschedError
from novasched.model.candidate import Candidate
from novasched.model.host import Fleet, Host
from novasched.model.request import Request
from novasched.model.selection import Selection
from novasched.records import summary
from novasched.records.causes import Causes, Dropped, Names
from novasched.records.figures import FAILED, PLACED, REFUSED, Figures
from novasched.records.looks import UNSEEN, Unseen, Watched
from novasched.records.reasons import told
from novasched.records.record import Offer, Record, Result

PREFILTERS, PLACEMENT, HOSTS = 'prefilters', 'placement', 'hosts'
FILTERS, WEIGHERS, CLAIM, ALTERNATES = 'filters', 'weighers', 'claim', 'alternates'
STEPS = (PREFILTERS, PLACEMENT, HOSTS, FILTERS, WEIGHERS, CLAIM, ALTERNATES)
Offered: TypeAlias = Mapping[str, Sequence[Candidate]]
_NEXT = {
    **dict(pairwise(STEPS)),
    CLAIM: CLAIM,  # on the next host
    ALTERNATES: ALTERNATES,
}
TOGETHER = 'all together'
"""Where Placement refuses a claim that is one for all servers."""


class Unrecorded:
    """The account of a request of which nothing is kept."""

    def did(self, step: str) -> None:
        """A step has ended, which began when the one before it did."""

    def asked(self, request: Request) -> None:
        """Placement is asked for this: the request as the prefilters left it."""

    def offered(self, candidates: Offered) -> None:
        """It offers candidates, by the providers that give something."""

    def read(self, fleet: Fleet, uuids: Sequence[str], candidates: Offered | None) -> None:
        """Hosts are read; these of them may take servers."""

    def look(self, request: Request, index: int) -> Unseen:
        """A host is looked for, for the server in hand."""
        return UNSEEN

    def refused(self, host: Host, index: int) -> None:
        """Placement refuses a claim."""

    def unfit(self, host: Host, index: int) -> None:
        """A host does not fit any more when it is its turn."""

    def again(self) -> None:
        """Placement refuses to claim for all servers together: each is looked at anew."""

    def chose(self, answer: Sequence[Sequence[Selection]]) -> None:
        """Every server has its host."""


UNRECORDED = Unrecorded()


class Mark(NamedTuple):
    """The end of a step, which began where the one before it ended, and what it was about: the
    look that it belongs to, or the host on which Placement refused a claim."""

    step: str
    ended: float
    about: Watched | str | None


@dataclass(slots=True)
class _Noted:
    """What is known of one attempt at a request."""

    offer: Offer | None = None
    looks: dict[int, Watched] = field(default_factory=dict)
    together_refused: bool = False


class Account(Unrecorded):
    """The account of a request of which a record is wanted.

    :param timer: seconds, from any moment on.
    :param detailed: note the names of hosts, too, for :meth:`causes`.
    """

    def __init__(
        self, request: Request, seed: int, timer: Callable[[], float], detailed: bool = True
    ) -> None:
        self.request, self.seed = request, seed
        self.narrowed: Request | None = None
        self.result = Result()
        self.seconds = 0.0
        self.timer, self._detailed = timer, detailed
        self.began = timer()
        self._marks: list[tuple[str, float, Watched | str | None]] = []
        self._noted = _Noted()

    def did(self, step: str, about: Watched | str | None = None) -> None:
        """See :class:`Unrecorded`."""
        self._marks.append((step, self.timer(), about))

    @property
    def marks(self) -> list[Mark]:
        """The ends of all steps, in order."""
        return [Mark(*each) for each in self._marks]

    @property
    def steps(self) -> dict[str, float]:
        """How long each took, in sum (seconds)."""
        steps: dict[str, float] = defaultdict(float)
        last = self.began
        for step, ended, _ in self._marks:
            steps[step] += ended - last
            last = ended
        return dict(steps)

    @property
    def age(self) -> float:
        """How long ago it began (seconds)."""
        return self.timer() - self.began

    @property
    def offer(self) -> Offer | None:
        """What Placement offered, and how many hosts there are."""
        return self._noted.offer

    def asked(self, request: Request) -> None:
        """See :class:`Unrecorded`."""
        self.did(PREFILTERS)
        self.narrowed = request

    def offered(self, candidates: Offered) -> None:
        """See :class:`Unrecorded`."""
        self.did(PLACEMENT)
        self._noted = _Noted(Offer(_count(candidates), len(candidates)))

    def read(self, fleet: Fleet, uuids: Sequence[str], candidates: Offered | None) -> None:
        """See :class:`Unrecorded`. What was noted before was of an attempt that is over."""
        offer = (candidates is not None and self._noted.offer) or Offer(asked=False)
        elsewhere = 0
        if candidates is not None and len(uuids) < offer.providers:
            strangers = candidates.keys() - fleet.hosts.keys()
            elsewhere = len(
                {
                    id(each)
                    for rp in strangers
                    for each in candidates[rp]
                    if fleet.hosts.keys().isdisjoint(each.allocations)
                }
            )
        total = max(fleet.total, len(uuids))
        self._noted = _Noted(replace(offer, hosts=len(uuids), elsewhere=elsewhere, total=total))
        self.did(HOSTS)

    def look(self, request: Request, index: int) -> Watched:
        """See :class:`Unrecorded`."""
        server = request.instance_uuid if request.instance_uuids else None
        look = Watched(self, server, index, self._detailed)
        self._noted.looks[index] = look
        return look

    def refused(self, host: Host, index: int) -> None:
        """See :class:`Unrecorded`."""
        self.did(CLAIM, host.host)
        self._noted.looks[index].refused.append(host.host)

    def unfit(self, host: Host, index: int) -> None:
        """See :class:`Unrecorded`."""
        self._noted.looks[index].unfit.append(host.host)

    def again(self) -> None:
        """See :class:`Unrecorded`."""
        self.did(CLAIM, TOGETHER)
        self._noted.looks.clear()
        self._noted.together_refused = True

    def chose(self, answer: Sequence[Sequence[Selection]]) -> None:
        """See :class:`Unrecorded`."""
        self.seconds = self.age
        hosts = tuple(selections[0].service_host for selections in answer)
        self.result = Result(hosts, alternates=len(answer[0]) - 1 if answer else 0)

    def failed(self, error: Exception) -> None:
        """No server has. Of errors that are not ours the text may hold anything."""
        self.seconds = self.age
        cause = error.__cause__ if isinstance(error, NoValidHost) else error
        failure = None
        if isinstance(cause, NovaschedError):
            failure = told(str(cause))
        elif cause is not None:
            failure = type(cause).__name__
        if cause is not None or not self._marks:
            self.did(self._under_way())
        refusal = error.reason if isinstance(error, NoValidHost) else None
        self.result = Result(refusal=refusal, failure=failure)

    def _under_way(self) -> str:
        """The step in which something fails."""
        if self._marks:
            return _NEXT[self._marks[-1][0]]
        return HOSTS if self.request.is_rebuild else PREFILTERS

    def record(self, id: str, at: float, hashed: bool = False) -> Record:
        """What is kept of it.

        :param id: what tells it from others.
        :param at: when it began (seconds since 1970).
        :param hashed: the ids of project and user are not shown.
        """
        noted = self._noted
        return Record(
            id,
            at,
            self.seed,
            self.request.request_id,
            self.request.global_request_id,
            summary.of(self.request, hashed),
            noted.offer,
            tuple(noted.looks[index].folded() for index in sorted(noted.looks)),
            self.steps,
            self.result,
            noted.together_refused,
        )

    def figures(self) -> Figures:
        """It in numbers."""
        looks, result = self._noted.looks.values(), self.result
        refused = sum(len(look.refused) for look in looks) + self._noted.together_refused
        said = REFUSED if result.refusal is not None else PLACED
        return Figures(
            FAILED if result.failure is not None else said,
            len(result.hosts),
            self.seconds,
            dict(self.steps),
            tuple(passed for look in looks for passed in look.passages()),
            tuple(each for look in looks for each in look.weighers),
            refused,
        )

    def causes(self) -> Causes:
        """Why not, for each host that could have been one."""
        looks = [self._noted.looks[index] for index in sorted(self._noted.looks)]
        dropped = [
            Dropped.of(stage, names, reasons)
            for look in looks
            for stage, _, reasons, names in look.stages
            if reasons
        ]
        return Causes(dropped, looks[0].order if looks else Names())


def _count(candidates: Offered) -> int:
    """How many there are: what the index says of itself, since to look at each costs more
    than the rest of an account."""
    known: int | None = getattr(candidates, 'count', None)
    return len(set(map(id, chain.from_iterable(candidates.values())))) if known is None else known
