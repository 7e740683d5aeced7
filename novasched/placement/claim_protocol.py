# SPDX-License-Identifier: Apache-2.0
"""The meaning of Placement's answers to claims, and the step that follows each answer.

A claim is written in one of four ways. :meth:`Answer.of` reads an answer, and
:data:`NEXT` has the step for each way and each answer. ``claims.py`` sends the requests
and carries out the steps. Nothing here asks Placement, waits, or keeps anything.

Some steps read the allocations first. Only if Placement has made the claim, the
allocations are equal to the claim, with the consumer generation after the claim.

A claim is *uncertain* if Placement may make the claim at a later moment, or once more:
an attempt without an answer may still wait in a proxy, or in Placement itself. After a
late answer, a proxy may have sent the claim twice, and the first attempt may still wait
as well. ``cleanup.py`` deletes the allocations of such claims.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto

from novasched.placement.allocations import Claim
from novasched.placement.api import Response
from novasched.scheduler.errors import ClaimFailed, PlacementUnavailable

PROXY_PATIENCE_S = 5.0
"""Seconds after which a proxy may send a request to a second Placement. The timeouts of
proxies are longer."""


class Way(Enum):
    """A way to write claims."""

    BATCH = auto()
    """One POST for several requests."""
    POST = auto()
    """One POST for several instances of a request, all or nothing."""
    PUT = auto()
    """A PUT for one instance."""
    PUT_BESIDE = auto()
    """A PUT for one instance after a conflict, beside the allocations that the instance
    was found to have."""


class Answer(Enum):
    """Placement's answer to claims."""

    MADE = auto()
    REFUSED = auto()
    """The candidate does not fit, or has a provider that Placement does not know."""
    CONFLICT = auto()
    """The generation of a consumer is not the generation in the claim."""
    LOST = auto()
    """No answer: Placement may have made the claims, or may make the claims later."""
    FAILED = auto()
    """Placement has not made the claims, and would not make a claim of a second
    candidate either."""

    @classmethod
    def of(cls, response: Response) -> 'Answer':
        """Read the response to the last attempt at claims.

        Placement compares the generations before anything else. So claims that an
        earlier attempt has made are a CONFLICT, and never REFUSED.
        """
        status = response.status_code
        if status == 204:
            return cls.MADE
        if status < 300:
            # Placement answers a successful claim by 204. A different success comes
            # from another server, such as a proxy.
            return cls.LOST
        if response.is_generation_conflict:
            return cls.CONFLICT
        if status in (400, 409):
            return cls.REFUSED
        return cls.FAILED


def is_final(response: Response, seconds: float) -> bool:
    """True if Placement carries out no attempt at claims after a response.

    :param seconds: the time since the first attempt was sent.
    """
    return not response.repeated and seconds <= PROXY_PATIENCE_S


class Step(Enum):
    """The step after an answer."""

    # The end of the claims.
    KEEP = auto()
    """The claims are made."""
    WATCH = auto()
    """The claims are made, and uncertain."""
    REFUSE = auto()
    """The caller may claim another candidate."""
    LOSE = auto()
    """The caller gets an error, and the claims are uncertain."""
    FAIL = auto()
    """The caller gets an error."""
    GIVE_UP = auto()
    """The caller gets nova's error for a consumer that other processes change."""

    # Further requests.
    HALVE = auto()
    """Write the halves of the batch separately: one request does not fit. The claims
    are not uncertain: otherwise SEPARATE."""
    SEPARATE = auto()
    """Read the allocations of each request, and write the requests separately."""
    WRITE_BESIDE = auto()
    """Write the claim again, beside the allocations that were read."""


@dataclass(frozen=True, slots=True)
class ReadFirst:
    """Read the allocations first. Then WATCH if Placement has made the claims, and LOSE
    if the allocations cannot be read.

    :ivar otherwise: the step if Placement has not made the claims.
    """

    otherwise: Step


READ_OR_LOSE = ReadFirst(Step.LOSE)

NEXT: Mapping[Way, Mapping[Answer, Step | ReadFirst]] = {
    Way.BATCH: {
        Answer.MADE: Step.KEEP,
        Answer.REFUSED: Step.HALVE,
        # The answer does not tell which request has the conflict.
        Answer.CONFLICT: Step.HALVE,
        Answer.LOST: Step.SEPARATE,
        Answer.FAILED: Step.FAIL,
    },
    Way.POST: {
        Answer.MADE: Step.KEEP,
        Answer.REFUSED: Step.REFUSE,
        # Instances with allocations are claimed one after the other, by PUTs.
        Answer.CONFLICT: ReadFirst(Step.REFUSE),
        Answer.LOST: READ_OR_LOSE,
        Answer.FAILED: Step.FAIL,
    },
    Way.PUT: {
        Answer.MADE: Step.KEEP,
        Answer.REFUSED: Step.REFUSE,
        Answer.CONFLICT: ReadFirst(Step.WRITE_BESIDE),
        Answer.LOST: READ_OR_LOSE,
        Answer.FAILED: Step.FAIL,
    },
    Way.PUT_BESIDE: {
        Answer.MADE: Step.KEEP,
        Answer.REFUSED: Step.REFUSE,
        # Another process changes the consumer all the time.
        Answer.CONFLICT: ReadFirst(Step.GIVE_UP),
        Answer.LOST: READ_OR_LOSE,
        Answer.FAILED: Step.FAIL,
    },
}
"""The step after each answer, by the way in which the claims were written."""


@dataclass(frozen=True, slots=True)
class Written:
    """The end of the claims of a request.

    :ivar made: the claims as Placement has made them, all or none.
    :ivar lost: uncertain claims that the caller does not have. The allocations are
        deleted as soon as Placement has made the claims.
    :ivar error: the error for the caller. Without claims and without an error,
        Placement has refused the claims.
    :ivar is_separated: the request goes on alone, since the claims of the batch are
        uncertain.
    """

    made: Sequence[Claim] = ()
    lost: Sequence[Claim] = ()
    error: Exception | None = None
    is_separated: bool = False

    @classmethod
    def of(
        cls, step: Step, claims: Sequence[Claim], error: PlacementUnavailable | None
    ) -> 'Written':
        """The end of claims by a step without further requests.

        :param error: the error without a usable answer of Placement.
        """
        lost = [claim for claim in claims if claim.is_uncertain]
        match step:
            case Step.KEEP:
                return cls(claims)
            case Step.WATCH:
                return cls(uncertain(claims))
            case Step.REFUSE:
                return cls(lost=lost)
            case Step.LOSE:
                error = PlacementUnavailable(str(error))
                return cls(lost=uncertain(claims), error=error)
            case Step.FAIL:
                return cls(lost=lost, error=error)
            case Step.SEPARATE:
                return cls(error=error, is_separated=True)
            case Step.GIVE_UP:
                why = 'another process changed the consumer during the claim'
                return cls(lost=lost, error=ClaimFailed(claims[0].uuid, why))
        raise AssertionError(f'{step} is not the end of claims')


def uncertain(claims: Sequence[Claim]) -> Sequence[Claim]:
    """Claims after an attempt that Placement may carry out even now."""
    return [claim.uncertain() for claim in claims]
