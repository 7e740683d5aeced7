# SPDX-License-Identifier: Apache-2.0
"""The drawing of ``claims/ledger.py``, walked at random: a table of transitions, and
what follows from the stages by a look at all claims."""

import math
from collections import Counter
from dataclasses import dataclass

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    consumes,
    invariant,
    rule,
)

from novasched.scheduler.claims.ledger import SHOWN_S, ClaimsLedger
from novasched.scheduler.model.claim import PendingClaim, Stage
from novasched.scheduler.model.instance import MAX_READ_LAG_S
from novasched.scheduler.model.request import REQUEST_LIMIT_S
from tests.lab.builders import (
    a_candidate,
    a_group,
    a_request,
    named_hosts,
    numbered_uuids,
)

HOSTS = named_hosts('abc', ram=65536)
INSTANCES = numbered_uuids('i', 4)
GROUP = a_group('anti-affinity')
TIMEOUT_S = 60.0

OVER = 'over'
STAGES = {
    (Stage.CHOSEN, 'claimed'): Stage.CLAIMED,
    (Stage.CHOSEN, 'shown'): Stage.SHOWN,
    (Stage.CHOSEN, 'superseded'): OVER,
    (Stage.CHOSEN, 'given up'): OVER,
    (Stage.CHOSEN, 'released'): Stage.RELEASED,
    (Stage.CLAIMED, 'claimed'): Stage.CLAIMED,
    (Stage.CLAIMED, 'shown'): Stage.SHOWN,
    (Stage.CLAIMED, 'late'): Stage.SHOWN,
    (Stage.CLAIMED, 'superseded'): Stage.SHOWN,
    (Stage.CLAIMED, 'released'): Stage.RELEASED,
    (Stage.SHOWN, 'claimed'): Stage.SHOWN,
    (Stage.SHOWN, 'shown'): Stage.SHOWN,
    (Stage.SHOWN, 'expired'): OVER,
    (Stage.SHOWN, 'released'): Stage.RELEASED,
}
"""The stage after an event, by the stage before."""


@dataclass
class Story:
    """The progress of a claim, told independently of the ledger."""

    claim: PendingClaim
    stage: Stage | str = Stage.CHOSEN
    claimed_at: float = math.inf
    settled_at: float = math.inf
    shown_at: float = math.inf
    hidden_at: float = -math.inf
    has_arrived: bool = False
    position: float = math.inf

    @property
    def is_there(self) -> bool:
        return self.stage not in (OVER, Stage.RELEASED)

    @property
    def instance(self) -> str | None:
        return self.claim.request.instance_uuid

    @property
    def host(self) -> str:
        return self.claim.host.uuid

    def happens(self, event: str) -> None:
        self.stage = STAGES[self.stage, event]

    def is_settled_since(self, moment: float) -> None:
        """The first news of the end of a claim that was CHOSEN counts."""
        if self.stage is Stage.CHOSEN:
            self.settled_at = moment

    def counts_at(self, moment: float) -> bool:
        """True if hosts read at a moment may not show the instance."""
        return self.shown_at > moment or self.hidden_at >= moment


class Walk(RuleBasedStateMachine):
    """A ledger, and the story of each claim."""

    claims = Bundle('claims')
    tries = Bundle('tries')

    def __init__(self) -> None:
        super().__init__()
        self.now = 1_000_000.0
        self.ledger = ClaimsLedger(TIMEOUT_S)
        self.stories: dict[PendingClaim, Story] = {}
        self.tries_begun: Counter[float] = Counter()
        self.releases: list[tuple[str | None, float]] = []
        self.past: dict[str, tuple[str, float]] = {}
        # A reader that follows the changes.
        self.number = 0
        self.known: set[PendingClaim] = set()
        self.known_amounts: Counter[str] = Counter()
        self.moment = self.now
        self.counting: dict[str, list[PendingClaim]] = {}

    @property
    def there(self) -> list[Story]:
        return [story for story in self.stories.values() if story.is_there]

    @rule(
        target=claims,
        instance=st.sampled_from([*INSTANCES, None]),
        host=st.sampled_from(HOSTS),
        is_ours=st.booleans(),
        is_member=st.booleans(),
        age=st.sampled_from([0, 30]),
        position=st.sampled_from([math.inf, 1.0, 2.0]),
    )
    def choose(self, instance, host, is_ours, is_member, age, position):
        """A scheduler chooses a host for an instance, or has done so some seconds
        ago."""
        request = a_request(instance_uuid=instance, group=GROUP if is_member else None)
        candidate = a_candidate(host.uuid)
        claim = PendingClaim(
            host=host,
            request=request,
            candidate=candidate,
            fit=None,
            limits={},
            since=self.now - age,
            amounts=candidate.resources(),
            is_ours=is_ours,
        )
        self.ledger.chosen(claim, position)
        self.stories[claim] = Story(claim, position=position)
        return claim

    @rule(claim=claims, position=st.sampled_from([1.0, 2.0, 3.0]))
    def announce(self, claim, position):
        self.ledger.announced(claim, position)
        if self.stories[claim].is_there:
            self.stories[claim].position = position

    @rule(
        answered=st.lists(claims, max_size=3, unique=True), age=st.sampled_from([0, 2])
    )
    def answer(self, answered, age):
        """A request is answered with claims."""
        moment = self.now - age
        self.ledger.claimed(answered, moment)
        for claim in answered:
            story = self.stories[claim]
            if story.is_there:
                story.claimed_at = moment
                story.is_settled_since(moment)
                story.happens('claimed')
        for claim in answered:
            self._supersede(claim, answered)

    def _supersede(self, claim, answered):
        """An instance goes to one host: the later of two answered claims counts."""
        story = self.stories[claim]
        if story.instance is None:
            return
        for other in self.there:
            if other.instance != story.instance or other.claim in answered:
                continue
            earlier, later = other, story
            if other.claim.since > claim.since:
                earlier, later = story, other
                if other.claimed_at == math.inf:
                    continue
            if earlier.stage in (Stage.CHOSEN, Stage.CLAIMED):
                earlier.happens('superseded')
                # Readings since the choice of the later claim show the move.
                earlier.shown_at = later.claim.since

    @rule(claim=claims, age=st.sampled_from([0, 1, 7]), is_there=st.booleans())
    def show(self, claim, age, is_there):
        """Hosts that were read some seconds ago show the instance, or that the instance
        will never arrive."""
        story = self.stories[claim]
        if not story.is_there:
            return
        read_at = self.now - age
        self.ledger.shown(claim, read_at, self.now, is_there)
        if not is_there:
            story.has_arrived = False
        if read_at < story.shown_at:
            story.has_arrived |= is_there
            story.is_settled_since(self.now)
            story.happens('shown')
            story.shown_at = read_at

    @rule(claim=claims)
    def hide(self, claim):
        """Hosts that are read now do not show the instance: their database lags."""
        story = self.stories[claim]
        if not story.is_there:
            return
        self.ledger.hidden(claim, self.now)
        late_at = story.claimed_at + TIMEOUT_S
        if story.shown_at <= self.now < min(story.shown_at + MAX_READ_LAG_S, late_at):
            story.hidden_at = self.now

    @rule(claim=claims)
    def release(self, claim):
        story = self.stories[claim]
        assert self.ledger.released(claim, self.now) is story.is_there
        self.releases.append((story.instance, self.now))
        if story.is_there:
            story.happens('released')

    @rule(target=tries, age=st.sampled_from([0, 1, 50]))
    def begin_try(self, age):
        self.ledger.begin_try(self.now - age)
        self.tries_begun[self.now - age] += 1
        return self.now - age

    @rule(read_since=consumes(tries))
    def end_try(self, read_since):
        self.ledger.end_try(read_since)
        self.tries_begun[read_since] -= 1

    @rule(seconds=st.sampled_from([1, 3, 57, 120, 1800]))
    def wait(self, seconds):
        """Time passes, and the ledger removes the claims that are over."""
        self.now += seconds
        self.ledger.expire(self.now)
        oldest = min(+self.tries_begun, default=math.inf)
        oldest = max(oldest, self.now - REQUEST_LIMIT_S)
        for story in self.there:
            late_at = story.claimed_at + TIMEOUT_S
            if story.stage is Stage.CLAIMED and late_at <= self.now:
                story.happens('late')
                story.shown_at = min(story.shown_at, late_at)
            if story.stage is Stage.CHOSEN:
                if story.claim.since + REQUEST_LIMIT_S <= self.now:
                    story.happens('given up')
            elif story.stage is Stage.SHOWN:
                is_old = story.shown_at + SHOWN_S <= self.now
                if is_old and not story.counts_at(oldest):
                    story.happens('expired')
                    self._remember(story)
        for uuid, (_, until) in [*self.past.items()]:
            if until <= self.now:
                del self.past[uuid]

    def _remember(self, story):
        """Requests in progress may not know a member whose claim is over."""
        if story.instance is not None and story.claim.request.instance_group:
            until = story.claim.since + REQUEST_LIMIT_S
            self.past[story.instance] = story.host, until

    @rule(age=st.sampled_from([0, 5]))
    def follow(self, age):
        """A reader learns the changes since it looked last."""
        changed = set()
        for change in reversed(self.ledger.changes_since(self.number)):
            claim = change.entry.claim
            changed.add(claim.host.uuid)
            if change.added > 0:
                self.known.add(claim)
            elif change.added < 0:
                self.known.remove(claim)
        assert self.known == {story.claim for story in self.there}

        _, is_all, amounts = self.ledger.amounts_since(self.number, -math.inf)
        assert not is_all
        for provider, of_provider in amounts.items():
            self.known_amounts[provider] += of_provider['VCPU']
        assert +self.known_amounts == Counter(story.host for story in self.there)

        moment = max(self.moment, self.now - age)
        if moment != self.moment:
            changed.update(self.ledger.hosts_with_shown_claims())
        for host in changed:
            self.counting[host] = [*self.ledger.counting_at(host, moment)]
        self.moment = moment
        for host in HOSTS:
            expected = self._counting(host.uuid, moment)
            assert self.counting.get(host.uuid, []) == expected
        self.number = self.ledger.number

    def _counting(self, host, moment):
        """The claims that hosts read at a moment may not show."""
        return [
            story.claim
            for story in self.there
            if story.host == host and story.counts_at(moment)
        ]

    @invariant()
    def stages_are_those_of_the_drawing(self):
        assert [*self.ledger] == [story.claim for story in self.there]
        for claim, story in self.stories.items():
            stage = story.stage if story.is_there else None
            assert self.ledger.stage_of(claim) is stage
            assert (claim in self.ledger) is story.is_there
            is_claimed = story.is_there and story.claimed_at < math.inf
            assert self.ledger.is_claimed(claim) is is_claimed
            if story.is_there:
                assert self.ledger.claimed_at(claim) == story.claimed_at
                assert self.ledger.position_of(claim) == story.position

    @invariant()
    def hosts_have_the_claims_that_count(self):
        by_host = {}
        for story in self.there:
            by_host.setdefault(story.host, []).append(story)
        assert {*self.ledger.hosts()} == by_host.keys()
        for host in HOSTS:
            stories = by_host.get(host.uuid, [])
            claims = tuple(story.claim for story in stories)
            assert self.ledger.on_host(host.uuid) == claims
            for moment in (self.now, self.now - 5, self.now - 60):
                counting = self.ledger.counting_at(host.uuid, moment)
                assert [*counting] == self._counting(host.uuid, moment)

    @invariant()
    def instances_have_arrived_within_the_lag(self):
        arrived = set()
        for story in self.there:
            if self.now - MAX_READ_LAG_S < story.shown_at and story.has_arrived:
                arrived.add(story.claim)
        assert {*self.ledger.arrivals_shortly_before(self.now)} == arrived

    @invariant()
    def placement_lacks_the_amounts_since_its_answer(self):
        for moment in (self.now, self.now - 5, -math.inf):
            unknown = [story for story in self.there if story.settled_at > moment]
            _, is_all, amounts = self.ledger.amounts_since(None, moment)
            assert is_all
            sums = {host: of_host['VCPU'] for host, of_host in amounts.items()}
            assert sums == Counter(story.host for story in unknown)

    @invariant()
    def undecided_claims_are_told(self):
        moment = self.now - 5
        for story in self.there:
            is_chosen = story.stage is Stage.CHOSEN
            was_chosen = is_chosen or moment < story.claimed_at < math.inf
            assert self.ledger.is_chosen(story.claim) is is_chosen
            assert self.ledger.was_chosen_at(story.claim, moment) is was_chosen

    @invariant()
    def instances_are_found(self):
        for uuid in INSTANCES:
            hosts = {story.host for story in self.there if story.instance == uuid}
            assert self.ledger.hosts_of([uuid]) == hosts
            later = [
                instance
                for instance, moment in self.releases
                if moment >= self.now - 5 and instance != uuid
            ]
            assert self.ledger.was_released(self.now - 5, [uuid]) is bool(later)

    @invariant()
    def members_of_a_group_are_remembered(self):
        members = []
        for story in self.there:
            if story.claim.request.instance_group is not None:
                members.append(story.claim)
        assert [*self.ledger.members.claims(GROUP.uuid)] == members
        past = {
            member.uuid: (member.host_uuid, member.until)
            for member in self.ledger.members.past(GROUP.uuid)
        }
        assert past == self.past


TestWalk = Walk.TestCase
TestWalk.settings = settings(max_examples=200, stateful_step_count=40)
