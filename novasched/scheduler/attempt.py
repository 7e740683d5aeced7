# SPDX-License-Identifier: Apache-2.0
"""The outcome of a try to decide a request, and the basis of the next try.

    basis -> try -> outcome -> basis of the next try, or the answer

======================  ====================================  ==========================
outcome                 condition                             next
======================  ====================================  ==========================
placed                                                        the answer
failed                                                        the error
refused                 no other request has made or          the refusal
                        released a claim since the try began
refused                 another request has made or released  a try on fresh data
                        a claim since the try began
stale                                                         a try on fresh data
incomplete                                                    a try on the answer to the
                                                              query of the request
unavailable             the request may wait                  a try on fresh data; an
                                                              earlier answer of
                                                              Placement still may serve
unavailable             the request has waited long enough    the error
======================  ====================================  ==========================
"""

from dataclasses import dataclass, replace
from enum import Enum

from novasched.scheduler.decision import Decision
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.candidate import Candidates


class End(Enum):
    """The ways in which a try ends.

    PLACED: every instance has a host. REFUSED: no host fits, by fresh data. STALE: the
    data of the try is out of date, or no host fits and the data may be out of date.
    INCOMPLETE: no host fits, but a new answer of Placement about all hosts may lack
    hosts. UNAVAILABLE: a service for the request does not answer. FAILED: any other
    error.
    """

    PLACED = 'placed'
    REFUSED = 'refused'
    STALE = 'stale'
    INCOMPLETE = 'incomplete'
    UNAVAILABLE = 'unavailable'
    FAILED = 'failed'


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of one try.

    :ivar decision: the steps and attempts of the try, and the selections if the
        instances were placed.
    :ivar error: the error to raise if there is no further try; None after PLACED.
    :ivar is_announced: the notification that hosts are being selected has been sent.
    :ivar candidates: Placement's offer to a request that was REFUSED; None if Placement
        was not asked, and after another end.
    """

    end: End
    decision: Decision
    error: Exception | None = None
    is_announced: bool = False
    candidates: Candidates | None = None


def next_basis(
    basis: Basis,
    outcome: Outcome,
    now: float,
    *,
    may_fit_now: bool = False,
    may_wait: bool = False,
) -> Basis | None:
    """The basis of the next try, or None where the outcome is the answer.

    :param now: when the next try begins (monotonic seconds).
    :param may_fit_now: another request has made or released a claim since the try
        began, so that the request may fit.
    :param may_wait: the request has time for another try.
    """
    # Services may have been upgraded meanwhile, so that the version is read again.
    fresh = replace(basis, began=now, read_since=now, minimum_version=None)
    if outcome.end is End.STALE or (outcome.end is End.REFUSED and may_fit_now):
        return replace(fresh, from_memory=False)
    if outcome.end is End.INCOMPLETE:
        return replace(fresh, from_memory=False, own_query=True)
    if outcome.end is End.UNAVAILABLE and may_wait:
        return fresh
    return None
