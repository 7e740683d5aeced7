# SPDX-License-Identifier: Apache-2.0
import contextlib
import inspect
import json
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.placement import claim_protocol
from novasched.placement import cleanup as cleanup_module
from novasched.placement.allocations import Claim, held_by
from novasched.placement.api import PROBE, PlacementApi
from novasched.placement.batching import POST_MAX_CONSUMERS
from novasched.placement.claims import Claims
from novasched.placement.cleanup import (
    MAX_WATCHED,
    AllocationCleanup,
    AllocationDeleter,
)
from novasched.placement.client import PlacementClient
from novasched.scheduler.errors import (
    ClaimFailed,
    DatabaseUnavailable,
    PlacementUnauthorized,
    PlacementUnavailable,
)
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.model.instance import InstanceState
from tests.lab.builders import a_candidate, a_full_candidate, a_request, a_uuid
from tests.lab.faulty_placement import FAULTS, FaultyPlacement, Nova

ONE = a_uuid('one')
TWO = a_uuid('two')
OLD = a_uuid('old')


def claims_of(placement, nova=None):
    """Claims in Placement, by a client with short pauses."""
    api = PlacementApi(placement, pause=1e-4, probes=(1e-3, 2e-3))
    return Claims(api, nova or Nova(), cleanup_pause=1e-3)


def claim(server='server', provider=ONE):
    return Claim.of(a_request(instance_uuid=server), a_candidate(provider))


def lose(claims, *wanted):
    """Claim without an answer."""
    with pytest.raises(PlacementUnavailable):
        claims.allocate(wanted)


def holds(provider):
    return {provider: {'VCPU': 1}}


@pytest.fixture
def placement():
    return FaultyPlacement()


@pytest.fixture(autouse=True)
def no_lag(monkeypatch):
    """Let the databases lag behind nothing, so that the cleanup looks once."""
    monkeypatch.setattr(cleanup_module, 'MAX_READ_LAG_S', 0.0)


@pytest.fixture
def no_cleanup_thread(monkeypatch):
    """Let nothing be deleted behind the requests before the cleanup is closed."""
    monkeypatch.setattr(AllocationCleanup, '_run', lambda self: None)


@pytest.fixture
def claims(placement):
    made = claims_of(placement)
    yield made
    made.cleanup.close(0)
    made.api.breaker.stop()


PUT = 'PUT /allocations/server'
GET = 'GET /allocations/server'
OUTCOMES = {
    'Placement has done it': (
        [
            ['after reset'],
            ['after half'],
            ['after 500'],
            ['after 502'],
            ['after 503'],
            ['after garbage'],
            ['after page'],
        ],
        True,
        None,
    ),
    'a failure that passes': (
        [
            ['before reset'] * 3,
            ['before half'] * 3,
            ['before 502'] * 3,
            ['before 503'] * 3,
            ['before refused'] * 3,
        ],
        True,
        [PUT] * 4,
    ),
    'a failure that leaves it open': (
        [['before 500'], ['before garbage'], ['late 500']],
        (PlacementUnavailable, None),
        [PUT, GET],
    ),
    'credentials': (
        [['before 401'], ['before 403']],
        (PlacementUnauthorized, 'the credentials'),
        [PUT],
    ),
    'any candidate would meet it': (
        [['before 404'], ['before unreachable']],
        (PlacementUnavailable, None),
        [PUT],
    ),
    'an old Placement': (
        [['before 406']],
        (PlacementUnavailable, r'upgraded: it lacks microversion 1\.36'),
        [PUT],
    ),
    'another process has the candidate': (
        [
            ['before full'],
            ['before unknown code'],
            ['before no code'],
            ['before no error'],
            ['before no JSON'],
            ['before wrong type'],
            ['before deep'],
        ],
        None,
        [PUT],
    ),
    'writers collide': ([['before contended'] * 3], True, [PUT] * 4),
    'writers collide again and again': ([['before contended'] * 4], None, [PUT] * 4),
}
"""Faults of the first requests; True, None for a refusal, or an error; and the requests
of the claim."""


def outcome_cases():
    for name, (cases, outcome, requests) in OUTCOMES.items():
        for faults in cases:
            case_id = f'{name}: {faults[0]}'
            yield pytest.param(faults, outcome, requests, id=case_id)


@pytest.mark.parametrize(('faults', 'outcome', 'requests'), [*outcome_cases()])
def test_each_fault_of_placement_has_an_outcome_for_the_claim(
    placement, claims, faults, outcome, requests
):
    """Placement has the allocations of a successful claim, and none after the claim is
    deleted."""
    placement.faults += faults

    made = None
    if isinstance(outcome, tuple):
        with pytest.raises(outcome[0], match=outcome[1]):
            claims.allocate([claim()])
    else:
        made = claims.allocate([claim()])
        assert bool(made) is bool(outcome)
        if made:
            assert placement.resources() == {'server': holds(ONE)}
        else:
            assert placement.resources() == {}

    asked = [request for request in placement.asked if PROBE not in request]
    if requests is not None:  # the cleanup begins with a GET
        assert asked[: len(requests) + (requests[-1] == PUT)] == requests

    placement.catch_up()
    for made_claim in made or ():
        claims.delete(made_claim)
    claims.cleanup.close(10)
    assert placement.resources() == {}


@pytest.mark.parametrize(
    ('answer', 'servers', 'told'),
    [('400', ['a'], 1), ('400', ['a', 'b'], 1), ('full', ['a'], 0), ('404', ['a'], 0)],
)
def test_a_400_to_a_claim_reports_a_missing_provider(placement, answer, servers, told):
    """A 400 reports the missing provider."""
    heard = []
    claims = Claims(PlacementApi(placement), provider_gone=lambda: heard.append(1))
    placement.faults += [f'before {answer}']

    with contextlib.suppress(PlacementUnavailable):
        assert claims.allocate([*map(claim, servers)]) is None

    assert len(heard) == told


@pytest.mark.parametrize(
    ('option', 'fault'),
    [('connect_retries', 'after reset'), ('status_code_retries', 'after 503')],
)
@pytest.mark.parametrize('retries', [0, 1, 2])
def test_nova_conf_options_set_the_number_of_claim_retries(
    placement, claims, option, fault, retries
):
    """The options of keystoneauth1 say how often something is tried again."""
    setattr(placement, option, retries)
    placement.faults += [fault] * 5
    with contextlib.suppress(PlacementUnavailable):
        claims.allocate([claim()])
    assert placement.asked[: retries + 2] == [*[PUT] * (retries + 1), GET]


@pytest.mark.parametrize(
    ('fault', 'is_made'), [('before 503', False), ('after 503', True)]
)
@pytest.mark.parametrize('count', [1, 2])
def test_a_claim_past_the_retry_limit_is_not_repeated(
    placement, claims, fault, is_made, count
):
    """While Placement is away, nothing is repeated for the request: neither the claim
    nor the look at the allocations after a lost answer."""
    placement.faults += [fault] + ['before 503'] * 9 * (not is_made)
    late = []
    for number in range(count):
        late.append(replace(claim(f'server{number}'), retry_until=time.monotonic()))

    if is_made:
        assert claims.allocate(late)
    else:
        lose(claims, *late)

    changing_requests = [line for line in placement.asked if not line.startswith('GET')]
    assert changing_requests == [placement.asked[0]]
    claims.cleanup.close(10)
    assert len(placement.resources()) == count * is_made


def moving(server='server', provider=ONE):
    """A claim for an instance in a cell."""
    wanted = a_request(instance_uuid=server).with_requested_destination(
        cell_uuid=a_uuid('cell')
    )
    return Claim.of(wanted, a_candidate(provider))


KINDS = {
    'build': (InstanceState(building=True), None),
    'unshelve': (InstanceState(), 'unshelving'),
    'evacuation': (InstanceState(host=OLD), 'rebuilding'),
}
"""The instance before each, and its task meanwhile."""


@pytest.mark.parametrize(
    ('before', 'asked'),
    [({}, [GET, PUT, GET, PUT]), (holds(OLD), [GET, PUT])],
    ids=['unshelve', 'evacuation'],
)
def test_a_move_reads_the_allocations_and_keeps_them(placement, claims, before, asked):
    """The allocations of the instance are written with their generation. An instance
    without allocations is written once more, for the next generation."""
    if before:
        placement.held['server'] = [5, before]
    assert claims.allocate([moving()])
    assert placement.asked == asked
    assert placement.resources() == {'server': before | holds(ONE)}


CARD = a_uuid('card')
SPARE = a_uuid('spare')
NFS = a_uuid('nfs')
WITH_CARD = {**holds(ONE), CARD: {'VGPU': 1}}
TREES = [[ONE, CARD, SPARE], [OLD], [NFS]]


@pytest.mark.parametrize(
    ('before', 'after'),
    [
        ({**holds(ONE), SPARE: {'VGPU': 1}}, WITH_CARD),
        ({SPARE: {'VGPU': 1}, **holds(OLD), **holds(ONE)}, {**WITH_CARD, **holds(OLD)}),
        (
            {**holds(OLD), NFS: {'DISK_GB': 5}},
            {**WITH_CARD, **holds(OLD), NFS: {'DISK_GB': 5}},
        ),
        (holds(OLD), {**WITH_CARD, **holds(OLD)}),
    ],
    ids=['lost there', 'lost there, evacuated', 'shared storage', 'evacuated'],
)
@pytest.mark.parametrize('is_known_before', [True, False])
def test_devices_of_a_lost_claim_on_the_same_host_are_not_kept(
    placement, claims, before, after, is_known_before
):
    """Another scheduler has lost a claim with another device of the host. Allocations on
    other hosts are kept, as those of an evacuated instance. The deletion of the claim
    leaves these."""
    wanted = replace(moving(), candidate=a_full_candidate({**WITH_CARD}))
    if not is_known_before:
        # The PUT of a build meets the allocations.
        wanted = replace(wanted, moves=False)
    placement.trees = TREES
    placement.held['server'] = [5, before]
    [made] = claims.allocate([wanted])
    assert placement.resources() == {'server': after}

    claims.delete(made)
    kept = {rp: after[rp] for rp in after if rp not in WITH_CARD}
    assert placement.resources() == ({'server': kept} if kept else {})


@pytest.mark.parametrize(
    ('wanted', 'before'),
    [
        ([claim()], {}),
        ([claim('one'), claim('two')], {}),
        ([moving()], {}),
        ([moving()], holds(OLD)),
    ],
    ids=['build', 'builds', 'unshelve', 'evacuation'],
)
def test_a_claim_sent_twice_by_a_proxy_is_made_and_can_be_deleted(
    placement, wanted, before
):
    """The second Placement answers that the consumer exists. The claim is made, and can
    be deleted."""
    claims = claims_of(placement, Nova({'server': InstanceState()}))
    if before:
        placement.held['server'] = [5, before]
    after = {made.uuid: {**before, **holds(ONE)} for made in wanted}
    if wanted[0].moves:
        placement.faults.append(None)
    placement.faults.append('twice -')

    made = claims.allocate(wanted)
    assert [claim.is_uncertain for claim in made] == [True] * len(wanted)
    assert placement.resources() == after

    for made_claim in made:
        claims.delete(made_claim)
    claims.cleanup.close(10)
    assert placement.resources() == ({'server': before} if before else {})


def test_moves_of_several_instances_are_claimed_all_or_none(placement, claims):
    """The claims are made all or nothing. An instance with allocations is a refusal."""
    assert len(claims.allocate([moving('a'), moving('b')])) == 2
    placement.held = {'a': [5, holds(OLD)]}
    assert claims.allocate([moving('a'), moving('b')]) is None
    assert placement.resources() == {'a': holds(OLD)}


@pytest.mark.parametrize('ask', [claim, moving])
def test_a_claim_fails_after_the_second_consumer_conflict(placement, claims, ask):
    """The claim fails after the second conflict, and is not written for ever."""
    request = placement.request

    def changing(path, method, **how):
        if method == 'PUT':
            assert len(placement.asked) < 20
            generation = placement.held.get('server', [0])[0]
            placement.held['server'] = [generation + 1, holds(OLD)]
        return request(path, method, **how)

    placement.request = changing
    with pytest.raises(ClaimFailed, match='another process changed the consumer'):
        claims.allocate([ask()])
    assert placement.asked.count(PUT) == 2
    assert placement.resources() == {'server': holds(OLD)}


@pytest.mark.parametrize(
    ('state', 'stays'),
    [
        pytest.param(InstanceState(gone=True), False, id='its build was refused'),
        pytest.param(None, False, id='nova does not know it'),
        pytest.param(InstanceState(building=True), True, id='its build goes on'),
        pytest.param(InstanceState(host=ONE), True, id='it runs there'),
        pytest.param(DatabaseUnavailable('no answer'), True, id='no database answers'),
    ],
)
def test_a_lost_build_claim_is_deleted_if_the_instance_is_gone(
    placement, caplog, state, stays
):
    """A request may be delivered to two schedulers, so nothing is taken for granted."""
    claims = claims_of(placement, Nova({'server': state}))
    placement.faults.append('late 500')
    lose(claims, claim())
    placement.catch_up()
    claims.cleanup.close(10)
    assert placement.resources() == ({'server': holds(ONE)} if stays else {})
    assert ('instance server is left' in caplog.text) is stays


@pytest.mark.parametrize('second', [ONE, TWO], ids=['the same host', 'another host'])
def test_a_late_claim_is_deleted_after_the_instance_is_gone(placement, second):
    """An instance with two claims is deleted before Placement makes the first claim.
    The late claim is deleted."""
    nova = Nova({'server': InstanceState(building=True)})
    claims = claims_of(placement, nova)
    placement.faults.append('late 500')
    lose(claims, claim())
    assert claims.allocate([claim(provider=second)])

    nova.instances['server'] = InstanceState(gone=True)
    del placement.held['server']
    placement.catch_up()
    assert placement.resources() == {'server': holds(ONE)}

    claims.cleanup.close(10)
    assert placement.resources() == {}


@pytest.mark.parametrize(
    ('state', 'stays'),
    [
        pytest.param(InstanceState(gone=True), False, id='its build has failed'),
        pytest.param(InstanceState(host=ONE), True, id='it runs there'),
        pytest.param(InstanceState(building=True), True, id='its build goes on'),
    ],
)
def test_a_late_first_attempt_is_deleted_after_a_failed_build(
    placement, caplog, state, stays
):
    """Placement makes a claim by its second attempt, and by the first attempt once
    nova-conductor has deleted the allocations after a failed build."""
    nova = Nova({'server': InstanceState(building=True)})
    claims = claims_of(placement, nova)
    placement.faults.append('late 503')
    assert claims.allocate([claim()])

    nova.instances['server'] = state
    del placement.held['server']
    placement.catch_up()
    assert placement.resources() == {'server': holds(ONE)}

    claims.cleanup.close(10)
    assert placement.resources() == ({'server': holds(ONE)} if stays else {})
    assert 'is left' not in caplog.text


@pytest.mark.parametrize(('waiting', 'more'), [(MAX_WATCHED - 1, 1), (MAX_WATCHED, 0)])
@pytest.mark.usefixtures('no_cleanup_thread')
def test_the_number_of_watched_claims_is_limited(claims, waiting, more):
    """After a failure of Placement, only a few claims cost further requests."""
    for number in range(waiting):
        claims.cleanup.add(claim(f'server {number}'))
    claims.cleanup.watch(claim())
    assert claims.cleanup.pending == waiting + more


@pytest.mark.parametrize('kind', KINDS)
def test_a_late_abandoned_claim_is_not_kept_beside_the_next_claim(placement, kind):
    """Allocations by an abandoned claim are not kept beside the next claim."""
    nova = Nova({'server': KINDS[kind][0]})
    claims = claims_of(placement, nova)
    if kind == 'evacuation':
        placement.held['server'] = [5, holds(OLD)]
    before = dict(placement.resources().get('server', {}))
    ask = claim if kind == 'build' else moving
    placement.faults += ['late 500'] if kind == 'build' else [None, 'late 500']
    lose(claims, ask())
    request = placement.request

    def late(path, method, **how):
        if method == 'PUT':
            placement.catch_up()
        return request(path, method, **how)

    placement.request = late
    assert claims.allocate([ask(provider=TWO)])
    assert placement.resources() == {'server': {**before, **holds(TWO)}}
    claims.cleanup.close(0)


@pytest.mark.parametrize(('ask', 'before'), [(claim, {}), (moving, holds(OLD))])
def test_a_move_keeps_the_allocations_of_a_repeated_claim(placement, ask, before):
    """Allocations by the second of two equal claims stay beside the allocations of the
    move."""
    nova = Nova({'server': InstanceState(host=OLD)})
    claims = claims_of(placement, nova)
    placement.held = {'server': [5, before]} if before else {}
    placement.faults += [None, 'before 500'] if before else ['before 500']
    lose(claims, ask())
    assert claims.allocate([ask()])
    placement.held['server'][1] = holds(ONE)
    nova.instances['server'] = InstanceState(host=ONE)

    assert claims.allocate([moving(provider=TWO)])

    nova.instances['server'] = InstanceState(host=TWO)
    claims.cleanup.close(10)
    assert placement.resources() == {'server': {**holds(ONE), **holds(TWO)}}


@pytest.mark.usefixtures('no_cleanup_thread')
def test_deleting_an_evacuation_claim_keeps_the_source_allocations(placement):
    """A claim is given back before the next claim of an evacuation. The allocations on
    the source stay, also if they may have been made twice."""
    nova = Nova({'server': InstanceState(building=True)})
    claims = claims_of(placement, nova)
    placement.faults.append('twice -')
    assert claims.allocate([claim()])
    nova.instances['server'] = InstanceState(host=ONE, task='rebuilding')

    placement.faults += [None, None, 'twice -']
    [first] = claims.allocate([moving(provider=TWO)])
    claims.delete(first)
    assert placement.resources() == {'server': {**holds(ONE), **holds(TWO)}}
    assert claims.allocate([moving(provider=OLD)])
    assert placement.resources() == {'server': {**holds(ONE), **holds(OLD)}}


@pytest.mark.parametrize(
    ('state', 'stays'),
    [
        pytest.param(InstanceState(host=TWO), False, id='it runs there'),
        pytest.param(
            InstanceState(host=ONE), True, id='it runs on the host of the lost claim'
        ),
        pytest.param(
            InstanceState(host=TWO, building=True), True, id='its build goes on'
        ),
        pytest.param(InstanceState(host=TWO, task='migrating'), True, id='it moves'),
        pytest.param(InstanceState(), True, id='it is nowhere'),
        pytest.param(None, True, id='nova does not know it'),
    ],
)
def test_a_late_claim_kept_by_another_scheduler_is_deleted_if_unused(
    placement, caplog, state, stays
):
    """The other scheduler keeps the allocations of the lost claim, as for a move. They
    are removed as soon as no request can own them."""
    nova = Nova({'server': InstanceState(building=True)})
    claims = claims_of(placement, nova)
    other = claims_of(placement, nova)
    placement.faults.append('late 500')
    lose(claims, claim())
    placement.catch_up()
    assert other.allocate([claim(provider=TWO)])
    assert placement.resources() == {'server': {**holds(ONE), **holds(TWO)}}
    nova.instances['server'] = state
    claims.cleanup.close(10)
    assert placement.resources() == {
        'server': {**(holds(ONE) if stays else {}), **holds(TWO)}
    }
    assert ('instance server is left' in caplog.text) is stays


@pytest.mark.parametrize('second', [ONE, TWO], ids=['the same host', 'another host'])
def test_a_late_deletion_does_not_remove_the_next_claim(placement, second):
    """A deletion without an answer takes effect after the next claim. A consumer with
    new allocations begins with the generation in the deletion."""
    claims = claims_of(placement, Nova())
    [made] = claims.allocate([claim()])
    placement.faults += [None, 'late 500']
    claims.delete(made)
    [again] = claims.allocate([claim(provider=second)])
    placement.catch_up()
    assert placement.resources() == {'server': holds(second)}
    claims.delete(again)
    claims.cleanup.close(10)
    assert placement.resources() == {}


@pytest.mark.usefixtures('no_cleanup_thread')
def test_a_late_deletion_does_not_remove_the_claim_of_another_scheduler(placement):
    """The deletion is carried out after the build has failed, and after another
    scheduler has placed the server again."""
    nova = Nova({'server': InstanceState(building=True)})
    claims = claims_of(placement, nova)
    other = claims_of(placement, nova)
    [made] = claims.allocate([claim()])
    placement.faults += [None, 'late 500']
    claims.delete(made)
    del placement.held['server']
    assert other.allocate([moving(provider=TWO)])
    placement.catch_up()
    assert placement.resources() == {'server': holds(TWO)}


@pytest.mark.usefixtures('no_cleanup_thread')
@pytest.mark.parametrize('fault', ['before 500', 'before full', 'after 500'])
def test_a_claim_that_cannot_be_renewed_fails_and_is_deleted(placement, claims, fault):
    """The request is decided again, and the claim is deleted."""
    [made] = claims.allocate([claim()])
    placement.faults += [None, 'late 500']
    claims.delete(made)
    placement.faults += [None, None, None, None, fault]
    lose(claims, claim(provider=TWO))
    placement.late.clear()
    claims.cleanup.close(10)
    assert placement.resources() == {}


def test_allocations_in_another_generation_are_not_deleted(placement, claims):
    """Equal amounts in another generation belong to another claim."""
    [made] = claims.allocate([claim()])
    placement.held['server'][0] += 1
    claims.delete(made)
    assert placement.resources() == {'server': holds(ONE)}


def test_a_deletion_without_an_answer_is_not_sent_again_at_once(placement, claims):
    """A second deletion might delete a later claim of another scheduler."""
    [made] = claims.allocate([claim()])
    placement.faults += [None, 'after reset']
    claims.delete(made)
    assert placement.asked[1:3] == [GET, PUT]
    placement.held['server'] = [1, holds(ONE)]
    claims.cleanup.close(0)
    assert placement.asked.count(PUT) <= 3


class Gate:
    """Holds requests of a method outside of Placement."""

    def __init__(self, placement, method):
        self.waiting = threading.Semaphore(0)
        self.open = threading.Event()
        self._request = placement.request
        self._method = method
        placement.request = self.request

    def request(self, path, method, *args, **how):
        if method == self._method and not self.open.is_set():
            self.waiting.release()
            assert self.open.wait(30)
        return self._request(path, method, *args, **how)


@contextlib.contextmanager
def together(placement, claims, wanted):
    """The outcomes of claims in a common POST. The POST begins at the end of the
    block."""
    gate = Gate(placement, 'PUT')
    pause = threading.Event()
    with ThreadPoolExecutor(len(wanted) + 1) as pool:
        first = pool.submit(claims.allocate, [claim('first')])
        assert gate.waiting.acquire(timeout=10)
        outcomes = []
        for number, each in enumerate(wanted, 1):
            outcomes.append(pool.submit(claims.allocate, [each]))
            while len(claims._batches.waiting) < number:
                pause.wait(0.001)
        yield outcomes
        gate.open.set()
        assert first.result(10)


@pytest.mark.parametrize(
    'faults',
    [
        ['after timeout'],
        ['before timeout'],
        ['late timeout'],
        ['after 500'],
        ['before 500'],
        ['late 504'],
        ['before garbage'],
        ['before timeout', 'before timeout'],
    ],
    ids=' '.join,
)
def test_a_common_post_without_an_answer_refuses_no_request(placement, claims, faults):
    """No request is refused. Claims that were made count; the remaining claims go on
    alone."""
    servers = ['one', 'two', 'three']

    with together(placement, claims, [*map(claim, servers)]) as outcomes:
        placement.faults += [None, *faults]

    for outcome in outcomes:
        assert outcome.result(10)
    placement.catch_up()
    claims.cleanup.close(10)
    assert placement.resources() == dict.fromkeys(['first', *servers], holds(ONE))
    assert placement.asked[1] == 'POST /allocations'


def test_a_post_sent_twice_leaves_no_allocations_of_a_failed_request(
    placement, claims, monkeypatch
):
    """A slow answer that a consumer exists may hide that the claims are made. The
    allocations are deleted of a request that fails when it goes on alone."""
    monkeypatch.setattr(claim_protocol, 'PROXY_PATIENCE_S', -1.0)
    # The looks of the cleanup would meet the faults of the claims.
    monkeypatch.setattr(AllocationCleanup, '_run', lambda self: None)
    with together(placement, claims, [claim('one'), claim('two')]) as outcomes:
        placement.faults += [None, 'twice -', 'before unreachable']

    made = {'first': holds(ONE)}
    for server, outcome in zip(('one', 'two'), outcomes, strict=True):
        with contextlib.suppress(PlacementUnavailable):
            assert outcome.result(10)
            made[server] = holds(ONE)
    assert len(made) == 2
    claims.cleanup.close(10)
    assert placement.resources() == made


@pytest.mark.parametrize('answers', [False, True], ids=['away', 'slow'])
def test_all_requests_of_a_post_fail_if_placement_stays_away_or_slow(
    placement, claims, monkeypatch, answers
):
    """If Placement is away or slow for too long, all requests fail, and no allocation
    stays."""
    claims.api.breaker.wait_closed = lambda seconds: answers
    monkeypatch.setattr('novasched.placement.claims.SEPARATE_LIMIT_S', -1.0)
    with together(placement, claims, [claim('one'), claim('two')]) as outcomes:
        placement.faults += [None, 'after timeout']

    for outcome in outcomes:
        with pytest.raises(PlacementUnavailable, match=r'slow|too long'):
            outcome.result(10)
    placement.faults.clear()
    claims.cleanup.close(10)
    assert placement.resources() == {'first': holds(ONE)}


@pytest.fixture
def posts(placement):
    """The number of consumers by POST."""
    counts = []
    request = placement.request

    def counting(path, method, data=None, **how):
        if method == 'POST':
            counts.append(len(json.loads(data)))
        return request(path, method, data=data, **how)

    placement.request = counting
    return counts


@pytest.mark.parametrize(
    ('faults', 'error'),
    [
        pytest.param([], None, id='all is well'),
        pytest.param([None, 'after 500'], None, id='an answer is lost'),
        pytest.param([None, 'before full'], True, id='refused'),
        pytest.param([None, 'before 500'], PlacementUnavailable, id='one fails'),
        pytest.param([None, 'late 500'], PlacementUnavailable, id='one is late'),
    ],
)
def test_a_request_for_many_instances_is_claimed_in_bounded_posts(
    placement, claims, posts, faults, error
):
    """A POST is no larger than Placement answers in a second or two. The claims are
    made all or nothing."""
    placement.faults += faults
    wanted = [claim(f'server{number}', (ONE, TWO)[number % 2]) for number in range(301)]

    if error is PlacementUnavailable:
        lose(claims, *wanted)
        placement.catch_up()
    else:
        made = claims.allocate(wanted)
        assert (made is None) is bool(error)
    claims.cleanup.close(30)

    assert len(posts) > 1
    assert max(posts) <= POST_MAX_CONSUMERS + 1
    assert len(placement.resources()) == (0 if error else len(wanted))


def test_no_post_begins_after_the_time_limit_of_a_request(placement, claims, posts):
    """After the time limit of the request no POST begins, and no allocation stays."""
    until = time.monotonic() + 0.5
    wanted = [replace(claim(f'server{number}'), until=until) for number in range(301)]
    request = placement.request
    pause = threading.Event()

    def slow(path, method, **how):
        while method == 'POST' and time.monotonic() <= until:
            pause.wait(0.01)
        return request(path, method, **how)

    placement.request = slow
    lose(claims, *wanted)
    claims.cleanup.close(30)
    assert len(posts) <= 1
    assert placement.resources() == {}


def test_a_move_does_not_wait_for_a_post_of_other_claims(placement, claims):
    """Moves do not wait for a POST, and the POST does not fail with a move."""
    gate = Gate(placement, 'POST')
    placement.held['old'] = [5, holds(OLD)]
    with ThreadPoolExecutor(2) as pool:
        try:
            several = pool.submit(claims.allocate, [claim('one'), claim('two')])
            assert gate.waiting.acquire(timeout=10)
            move = pool.submit(claims.allocate, [moving('old')])
            assert move.result(10)
            assert not several.done()
        finally:
            gate.open.set()
        assert several.result(10)
    assert placement.resources()['old'] == holds(ONE) | holds(OLD)


def test_at_most_two_batches_of_claims_are_written_at_once(placement, claims):
    """Claims on different hosts do not wait for each other. At most two batches are in
    flight; later claims wait for the end of a batch."""
    gate = Gate(placement, 'PUT')
    pause = threading.Event()
    with ThreadPoolExecutor(4) as pool:
        try:
            outcomes = []
            for wanted in (claim('one', ONE), claim('two', TWO), claim('third', OLD)):
                outcomes.append(pool.submit(claims.allocate, [wanted]))
            assert gate.waiting.acquire(timeout=10)
            assert gate.waiting.acquire(timeout=10)
            while not claims._batches.waiting:
                pause.wait(0.001)
            assert not gate.waiting.acquire(blocking=False)
        finally:
            gate.open.set()
        for outcome in outcomes:
            assert outcome.result(10)
    assert not claims._batches.waiting


def test_the_next_batch_begins_beside_stuck_batches(placement, monkeypatch):
    """The next batch begins after a while, beside the stuck batches. No thread waits
    for a batch of other requests."""
    monkeypatch.setattr('novasched.placement.batching.STUCK_AFTER_S', 0.02)
    claims = claims_of(placement)
    gate = Gate(placement, 'POST')
    for _ in range(9):
        claims._batches.took(9.0, 2)  # so that each batch has one order

    with ThreadPoolExecutor(4) as pool:
        try:
            outcomes = []
            for name in 'abcd':
                order = [claim(f'{name} 1'), claim(f'{name} 2')]
                outcomes.append(pool.submit(claims.allocate, order))
            for _ in outcomes:
                assert gate.waiting.acquire(timeout=10)
        finally:
            gate.open.set()
        for outcome in outcomes:
            assert outcome.result(10)
    claims.cleanup.close(0)


def test_an_unexpected_error_fails_the_claim_but_not_the_next_claim(
    claims, monkeypatch
):
    """The error is raised in the threads of the batch, and in no other thread."""
    with monkeypatch.context() as patch:
        patch.setattr(claims.api, 'send', None)
        with pytest.raises(TypeError):
            claims.allocate([claim()])
    assert claims.allocate([claim('other')])


def test_a_claim_passes_through_few_functions_before_http(placement):
    """A PUT passes through few functions of novasched before the HTTP library."""
    frames = []
    request = placement.request

    def counting(*args, **how):
        for frame, _ in traceback.walk_stack(inspect.currentframe()):
            if frame.f_globals['__name__'].startswith('novasched.'):
                frames.append(frame.f_code.co_name)
        return request(*args, **how)

    placement.request = counting
    client = PlacementClient(Settings(), placement)
    basis = Basis(began=time.monotonic())
    assert client.claim(a_request(), a_candidate(ONE), basis)
    client.close()
    assert len(frames) <= 8, frames
    assert frames[-1] == 'claim'


@pytest.mark.parametrize('servers', [['server'], ['server', 'other']])
def test_a_claim_sent_twice_with_a_lost_look_is_answered_or_deleted(
    placement, claims, servers
):
    """A claim that is refused to the caller is deleted, and a claim that is deleted is
    not answered, where a proxy has sent the claim twice and the answer to the look at
    it gets lost."""
    placement.faults += ['twice -', 'after timeout']
    made = None
    with contextlib.suppress(PlacementUnavailable):
        made = claims.allocate([claim(server) for server in servers])
    claims.cleanup.close(10)
    expected = {}
    for server in servers if made else ():
        expected[server] = holds(ONE)
    assert placement.resources() == expected


STEPS = [
    [('server', ONE)],
    [('server', TWO)],
    [('old', ONE)],
    [('third', ONE), ('fourth', TWO)],
]


@given(
    st.lists(st.sampled_from((None, *FAULTS)), max_size=10),
    st.lists(st.tuples(st.sampled_from(STEPS), st.booleans()), min_size=1, max_size=3),
)
@settings(max_examples=300, deadline=None)
def test_random_faults_leave_exactly_the_claimed_allocations(faults, steps):
    """An instance has the allocations of its claim and earlier allocations, or the
    earlier allocations alone after a refusal or a deletion. Faults come in random
    order, and Placement may carry out requests late, and twice."""
    placement = FaultyPlacement()
    placement.held['old'] = [5, holds(OLD)]
    expected = {'old': holds(OLD)}
    claims = claims_of(placement)
    placement.faults += faults
    placed = set()

    for step, stays in steps:
        servers = [server for server, _ in step]
        if placed.intersection(servers):
            continue  # a placed instance is not requested again
        made = None
        with contextlib.suppress(PlacementUnavailable, ClaimFailed):
            made = claims.allocate([claim(*arguments) for arguments in step])
        if made:
            placed.update(servers)
        if made and stays:
            for server, provider in step:
                held = expected.get(server, {})
                expected[server] = holds(provider) | held
        elif made:
            for made_claim in made:
                claims.delete(made_claim)

    placement.faults.clear()
    placement.catch_up()
    claims.cleanup.close(10)
    claims.api.breaker.stop()
    assert placement.resources() == expected


class SeveralSchedulers:
    """An instance in requests to two schedulers, until a scheduler answers.

    :ivar answered: the provider of the answer.
    """

    def __init__(self, kind, faults=()):
        self.kind = kind
        self.before, self.task = KINDS[kind]
        self.placement = FaultyPlacement()
        self.nova = Nova()
        self.schedulers = (
            claims_of(self.placement, self.nova),
            claims_of(self.placement, self.nova),
        )
        if kind == 'evacuation':
            self.placement.held['server'] = [5, holds(OLD)]
        self.held = self.placement.resources().get('server', {})
        self.placement.faults += faults
        self.answered = None

    def ask(self, scheduler, provider, is_given_back=False):
        """Ask a scheduler, unless a scheduler has answered. The scheduler deletes the
        claim of a request that fails later.

        After an answer, the instance keeps its task until :meth:`end` or :meth:`drop`.
        """
        if self.answered:
            return
        if self.kind == 'build':
            wanted = claim(provider=provider)
        else:
            wanted = moving(provider=provider)
        claims = self.schedulers[scheduler]
        self.nova.instances['server'] = replace(self.before, task=self.task)
        with contextlib.suppress(PlacementUnavailable, ClaimFailed):
            made = claims.allocate([wanted])
            if made and is_given_back:
                claims.delete(made[0])
            elif made:
                self.answered = provider
        if not self.answered:
            self.nova.instances['server'] = self.before

    def drop(self):
        """Delete the allocations of the instance, as a conductor does after a failed
        request."""
        self.answered = None
        with self.placement._lock:
            del self.placement.held['server']
        self.nova.instances['server'] = self.before

    def end(self, source_returns=False):
        """End the work of nova on the request, and the cleanup of the schedulers."""
        if self.answered:
            self.nova.instances['server'] = InstanceState(host=self.answered)
        elif self.kind == 'build':
            self.nova.instances['server'] = InstanceState(gone=True)
        self.placement.faults.clear()
        self.placement.catch_up()
        if source_returns and self.answered:
            self.remove_source()
        for claims in self.schedulers:
            claims.cleanup.close(10)
            claims.api.breaker.stop()

    def remove_source(self):
        """Delete the allocations on the source of an evacuation, as a returned
        nova-compute does."""
        if OLD not in self.held:
            return
        self.held = {}
        with self.placement._lock:  # a cleanup may be at work
            generation, held = self.placement.held['server']
            remaining = dict(held)
            remaining.pop(OLD, None)
            self.placement.held['server'] = [generation + 1, remaining]

    def check(self):
        """The instance has the provider of the answer, and the earlier allocations."""
        expected = dict(self.held)
        if self.answered:
            expected |= holds(self.answered)
        assert self.placement.resources().get('server', {}) == expected


@pytest.mark.usefixtures('no_cleanup_thread')
@pytest.mark.parametrize('kind', KINDS)
def test_a_lost_claim_is_deleted_beside_a_claim_of_another_scheduler(kind):
    """The lost claim is deleted, and the claim of the other scheduler stays, also after
    earlier allocations of the instance are gone."""
    faults = ['late 500'] if kind == 'build' else [None, 'late 500']
    site = SeveralSchedulers(kind, faults)

    site.ask(0, ONE)
    site.placement.catch_up()
    site.ask(1, TWO)

    assert site.placement.resources() == {
        'server': {**site.held, **holds(ONE), **holds(TWO)}
    }
    site.end(source_returns=True)
    site.check()


@pytest.mark.usefixtures('no_cleanup_thread')
def test_a_lost_claim_is_deleted_after_an_equal_claim_was_dropped():
    """A lost claim is deleted beside the claim of another scheduler, also if the first
    scheduler has claimed the same again, and the caller has deleted the second
    claim."""
    site = SeveralSchedulers('unshelve', [None, 'late 500'])
    site.ask(0, ONE)
    site.ask(0, ONE)
    assert site.answered == ONE

    site.drop()
    site.placement.catch_up()
    assert site.placement.resources() == {'server': holds(ONE)}

    site.ask(1, TWO)
    assert site.placement.resources() == {'server': {**holds(ONE), **holds(TWO)}}
    site.end()
    site.check()


@pytest.mark.usefixtures('no_cleanup_thread')
@pytest.mark.parametrize('kind', ['unshelve', 'evacuation'])
def test_a_failed_deletion_is_repeated_beside_another_scheduler_claim(kind):
    """A claim with an answer, whose deletion has failed, is deleted likewise."""
    faults = [None, None, None, *['before 500'] * 3]
    site = SeveralSchedulers(kind, faults)
    site.ask(0, ONE, is_given_back=True)
    site.placement.faults.clear()
    site.ask(1, TWO)
    assert site.placement.resources() == {
        'server': {**site.held, **holds(ONE), **holds(TWO)}
    }
    site.end()
    site.check()


@pytest.mark.usefixtures('no_cleanup_thread')
@pytest.mark.parametrize('kind', ['build', 'unshelve'])
def test_allocations_claimed_during_a_look_at_a_lost_claim_stay(kind):
    """A scheduler looks at its lost claim. Before it reads the instance, another
    scheduler deletes the lost claim and claims for a request, and the request ends.
    The new allocations have the generation of the lost claim, and stay."""
    lost = ['before 500', None]
    if kind == 'unshelve':
        lost = [None, *lost]  # the reading before the claim of a move
    site = SeveralSchedulers(kind, [*lost, *lost])
    site.ask(0, ONE)
    site.ask(1, ONE)
    site.placement.held['server'] = [1, holds(ONE)]  # by one of the lost claims
    find = site.nova.find

    def find_after_request(uuid, providers):
        site.nova.find = find
        site.ask(1, TWO)
        site.nova.instances['server'] = InstanceState(host=TWO)
        return find(uuid, providers)

    site.nova.find = find_after_request
    site.schedulers[0].cleanup.close(10)

    assert site.answered == TWO
    site.check()
    site.end()
    site.check()


@given(
    st.sampled_from([*KINDS]),
    st.lists(st.sampled_from((None, *FAULTS)), max_size=16),
    st.lists(
        st.tuples(st.booleans(), st.sampled_from([ONE, TWO]), st.booleans()),
        min_size=1,
        max_size=4,
    ),
    st.booleans(),
)
@settings(max_examples=300, deadline=None)
def test_random_faults_keep_the_answered_claim_of_several_schedulers(
    kind, faults, attempts, source_returns
):
    """The claim of the answer stays, even if Placement carries out other claims late.
    Without an answer, the instance has the earlier allocations."""
    site = SeveralSchedulers(kind, faults)
    for scheduler, provider, is_given_back in attempts:
        site.ask(scheduler, provider, is_given_back)
    site.end(source_returns)
    site.check()


@pytest.mark.parametrize(
    'fault', ['before 503', 'after 503', 'before reset', 'before contended']
)
def test_a_deletion_is_sent_once(placement, claims, fault):
    """The second of two equal deletions might delete a later claim of another
    request."""
    [made] = claims.allocate([claim()])
    held = held_by(claims.api, 'server')
    before = placement.asked.count(PUT)
    placement.faults += [fault]
    with pytest.raises(PlacementUnavailable):
        AllocationDeleter(claims.api, None).delete(made, held)
    assert placement.asked.count(PUT) == before + 1
