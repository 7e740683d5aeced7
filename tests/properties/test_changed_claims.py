# SPDX-License-Identifier: Apache-2.0
"""Pending claims updated by changes, compared with a look at all claims."""

import math
from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.scheduler.claims import ledger
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.claims.shared_ledger import SharedLedger
from novasched.scheduler.model.changes import UNVERSIONED
from novasched.scheduler.model.claim import Stage
from novasched.scheduler.model.host import HostSnapshot, HostView
from novasched.scheduler.model.instance import MAX_READ_LAG_S
from tests.lab.builders import (
    a_candidate,
    a_request,
    by_uuid,
    named_hosts,
    numbered_uuids,
)
from tests.lab.memory_schedulers import ManualClock

HOSTS = named_hosts('abcd', ram=65536)
EARLIER = by_uuid(HOSTS)
CHANGED = replace(HOSTS[0], cpu_allocation_ratio=2.0)
LATER = by_uuid((CHANGED, *HOSTS[1:3]))
"""The same hosts, but one has changed, and one is gone."""
TIMEOUT_S = 60.0
"""[novasched] in_flight_timeout."""
INSTANCES = numbered_uuids('i', 2)
ELSEWHERE = SimpleNamespace(
    host='x',
    node='x',
    vm_state='active',
    task_state=None,
    instance_type_id=None,
    deleted=0,
)
DELETED = SimpleNamespace(host='x', node='x', deleted=1)
ENDS = [(ELSEWHERE, MAX_READ_LAG_S), (DELETED, 0.0)]
"""Rows of instances that do not go to their hosts, and how much older than its reading
a row may be."""

_instance = st.sampled_from(INSTANCES)
_place = st.integers(0, 9)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just('add'), _instance, st.integers(0, 3)),
        st.tuples(st.sampled_from(['settle', 'drop']), _place),
        st.tuples(
            st.just('seen'),
            _instance,
            st.sampled_from(ENDS),
            st.booleans(),
        ),
        st.tuples(st.just('pass'), st.sampled_from([0.25, 5.0, 61.0])),
        st.tuples(
            st.sampled_from(['read', 'read', 'branch', 'unversioned']),
            st.sampled_from([EARLIER, EARLIER, LATER]),
        ),
        st.tuples(st.just('answer')),
    ),
    min_size=3,
    max_size=25,
)


class Snapshots:
    """The snapshots of hosts that requests get, one after the other."""

    def __init__(self, hosts, moment):
        self._hosts = {}
        self._changes = UNVERSIONED
        self.last = self.read(hosts, moment)

    def _changed(self, hosts):
        """The UUIDs of hosts that came, went or changed since the last reading."""
        uuids = self._hosts.keys() | hosts.keys()
        return {uuid for uuid in uuids if self._hosts.get(uuid) is not hosts.get(uuid)}

    def read(self, hosts, moment):
        """All hosts, for all requests from now on."""
        self._changes = self._changes.with_step(self._changed(hosts))
        self._hosts = hosts
        view = HostView(hosts, self._changes)
        self.last = HostSnapshot(view, moment, everywhere=hosts)
        return self.last

    def branch(self, hosts, moment):
        """The hosts of the last reading as a single request sees them."""
        changes = self._changes.branch(self._changed(hosts))
        view = HostView(hosts, changes)
        return HostSnapshot(view, self.last.read_at, everywhere=self._hosts)

    def unversioned(self, hosts, moment):
        """Hosts in a snapshot without a record of changes."""
        return HostSnapshot(HostView(hosts), moment, everywhere=hosts)


def superseded_by(claims, claim):
    """The claims that stand no longer once a claim is answered, each with the later
    claim for the same instance."""
    pairs = []
    with claims.ledger as found:
        for other in found:
            if other.request.instance_uuid != claim.request.instance_uuid:
                continue
            if other is not claim and found.stage_of(other) is Stage.CLAIMED:
                pair = sorted((other, claim), key=lambda each: each.since)
                pairs.append(pair)
    return pairs


def counting(claims, claimed, shown, hidden, snapshot, again, own):
    """Host UUID to the claims that count beside a snapshot, by a look at all claims.

    :param claimed: claim to the moment of the answer to its request.
    :param shown: claim to the moment at which hosts with the instance were read.
    :param hidden: claim to the moment at which hosts without the instance were last
        read afterwards.
    """
    by_host = {}
    for claim in claims.ledger.all():
        uuid = claim.host.uuid
        if uuid not in snapshot.hosts and uuid not in snapshot.everywhere:
            continue
        late_at = claimed.get(claim, math.inf) + TIMEOUT_S
        shown_at = min(shown.get(claim, math.inf), late_at)
        hidden_at = hidden.get(claim, -math.inf)
        if shown_at <= snapshot.read_at and hidden_at < snapshot.read_at:
            continue
        if claim.request.instance_uuid not in again or claim in own:
            by_host[uuid] = (*by_host.get(uuid, ()), claim)
    return by_host


def amounts(claims, settled, moment):
    """The amounts that Placement did not have at a moment, by a look at all claims.

    :param settled: claim to the moment since which Placement has the claim, or has no
        such claim.
    """
    by_provider = {}
    for claim in claims.ledger.all():
        if settled.get(claim, math.inf) > moment:
            add_amounts(by_provider, claim.amounts)
    return by_provider


def add_amounts(sums, more):
    """Add amounts by provider to the sums by provider."""
    for provider, of_provider in more.items():
        sums.setdefault(provider, Counter()).update(of_provider)


def without_zeros(sums):
    """The positive sums, without providers that have no positive sum."""
    positive = {}
    for provider, of_provider in sums.items():
        if +of_provider:
            positive[provider] = +of_provider
    return positive


@given(
    steps=STEPS,
    again=st.sampled_from([(), (), INSTANCES[:1]]),
    kept=st.sampled_from([0, 2, ledger.CHANGES_KEPT]),
)
@settings(max_examples=300)
def test_claims_updated_by_changes_equal_a_look_at_all_claims(steps, again, kept):
    """The claims that count, on all hosts and on a single host, the hosts less the
    claims, and the amounts since an answer equal a look at all claims, however few
    changes are kept."""
    clock = ManualClock()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ledger, 'CHANGES_KEPT', kept)
        claims = PendingClaims(Settings(), SharedLedger(TIMEOUT_S, clock))
    known = []
    claimed = {}
    settled = {}
    shown = {}
    hidden = {}
    snapshots = Snapshots(EARLIER, clock.now)
    snapshot = snapshots.last
    answered = clock.now
    change = None
    sums = {}
    for number, (step, *rest) in enumerate(steps):
        clock.now += 0.01
        if step == 'add':
            instance, place = rest
            request = a_request(instance_uuids=(instance,), instance_uuid=instance)
            candidate = a_candidate(HOSTS[place].uuid, VCPU=number + 1)
            known.append(claims.choose(HOSTS[place], request, candidate, {}))
        elif step in ('settle', 'drop') and known:
            claim = known[rest[0] % len(known)]
            if step == 'drop':
                claims.release(claim)
            elif claim not in claimed:
                superseded = superseded_by(claims, claim)
                claims.claimed([claim])
                claimed[claim] = clock.now
                settled.setdefault(claim, clock.now)
                for earlier, later in superseded:
                    shown[earlier] = later.since
        elif step == 'seen':
            instance, (row, lag_s), is_old = rest
            read_at = snapshot.read_at if is_old else clock.now
            for claim in claims.ledger.all():
                # A claim that may be younger than the row is not judged by the row.
                if claim.request.instance_uuid != instance:
                    continue
                late_at = claimed.get(claim, math.inf) + TIMEOUT_S
                shown_at = min(shown.get(claim, math.inf), late_at)
                if claim.since <= read_at - lag_s:
                    shown[claim] = min(read_at, shown_at)
                    settled.setdefault(claim, clock.now)
                elif shown_at <= read_at < min(shown_at + MAX_READ_LAG_S, late_at):
                    hidden[claim] = max(read_at, hidden.get(claim, -math.inf))
            claims.note_shown({instance: row}, read_at)
        elif step == 'pass':
            clock.now += rest[0]
        elif step in ('read', 'branch', 'unversioned'):
            snapshot = getattr(snapshots, step)(rest[0], clock.now)
        elif step == 'answer':
            answered = clock.now
            change = None
            sums = {}

        own = known[-1:]
        pending = claims.of(snapshot, again, own)
        assert pending == counting(claims, claimed, shown, hidden, snapshot, again, own)
        for uuid in snapshot.hosts:
            on_host = claims.on_host(uuid, snapshot, again, own)
            assert on_host == pending.get(uuid, ())

        less_claims = claims.left(snapshot, pending)
        for uuid, host in snapshot.hosts.items():
            left = less_claims.get(uuid, host)
            assert left.free_ram_mb == 65536 - 512 * len(pending.get(uuid, ()))
            assert left.cpu_allocation_ratio == host.cpu_allocation_ratio
            assert (uuid in less_claims) == (uuid in pending)

        change, is_all, taken = claims.taken(answered, change)
        if is_all:
            sums = {}
        add_amounts(sums, taken)
        assert without_zeros(sums) == amounts(claims, settled, answered)
