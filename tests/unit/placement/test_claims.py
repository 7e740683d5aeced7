# SPDX-License-Identifier: Apache-2.0
import contextlib
import logging
import threading
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.errors import ClaimFailed, PlacementUnauthorized, PlacementUnavailable
from novasched.placement.api import Api
from novasched.placement.claims import Claim, Claims
from novasched.placement.undoing import Undoing
from tests.builders import a_candidate, a_request, a_uuid
from tests.unit.placement.books import FAULTS, Books

ONE, TWO, OLD = a_uuid('one'), a_uuid('two'), a_uuid('old')


def claims_of(books):
    """Claims in these books, by a client that does not wait for long."""
    return Claims(Api(books, pause=1e-4, probes=(1e-3, 2e-3)), Undoing(first=1e-3))


def claim(server='server', provider=ONE):
    return Claim.of(replace(a_request(), instance_uuid=server), a_candidate(provider))


def holds(provider):
    return {provider: {'VCPU': 1}}


@pytest.fixture
def books():
    return Books()


@pytest.fixture
def claims(books):
    made = claims_of(books)
    yield made
    made.close(0)
    made.api.close()


LOST = ('reset', 'half', '500', '502', '503', 'garbage', 'page')


@pytest.mark.parametrize('fault', [f'after {each}' for each in LOST])
def test_a_lost_answer(books, claims, fault):
    """What Placement has done counts, whatever it answers."""
    books.faults.append(fault)
    made = claims.make([claim()])
    assert made
    assert books.resources() == {'server': holds(ONE)}
    claims.give_back(made[0])
    assert books.resources() == {}


@pytest.mark.parametrize('fault', ['reset', 'half', '502', '503', 'refused'])
def test_what_may_pass(books, claims, fault):
    """It is tried again."""
    books.faults += [f'before {fault}'] * 3
    assert claims.make([claim()])
    assert books.asked == ['PUT /allocations/server'] * 4


@pytest.mark.parametrize(
    ('option', 'fault'), [('connect_retries', 'after reset'), ('status_code_retries', 'after 503')]
)
@pytest.mark.parametrize('retries', [0, 1, 2])
def test_what_nova_conf_says(books, claims, option, fault, retries):
    """The options of keystoneauth1 say how often something is tried again."""
    setattr(books, option, retries)
    books.faults += [fault] * 5
    with contextlib.suppress(PlacementUnavailable):
        claims.make([claim()])
    assert books.asked[: retries + 2] == [
        *['PUT /allocations/server'] * (retries + 1),
        'GET /allocations/server',
    ]


@pytest.mark.parametrize('fault', ['before 500', 'before garbage', 'late 500'])
def test_an_answer_without_the_work(books, claims, fault):
    """The claim is refused, and given back if it comes late."""
    books.faults.append(fault)
    with pytest.raises(PlacementUnavailable):
        claims.make([claim()])
    assert books.asked[:2] == ['PUT /allocations/server', 'GET /allocations/server']
    books.catch_up()
    claims.close(10)
    assert books.resources() == {}


@pytest.mark.parametrize(
    ('fault', 'error'),
    [
        ('401', PlacementUnauthorized),
        ('403', PlacementUnauthorized),
        ('404', PlacementUnavailable),
        ('406', PlacementUnavailable),
        ('unreachable', PlacementUnavailable),
    ],
)
def test_what_any_candidate_would_meet(books, claims, fault, error):
    """It is certain that nothing was done, and no other host is tried."""
    books.faults.append(f'before {fault}')
    with pytest.raises(error):
        claims.make([claim()])
    assert books.asked == ['PUT /allocations/server']


def test_an_old_placement(books, claims):
    """The error says who must act."""
    books.faults.append('before 406')
    with pytest.raises(PlacementUnavailable, match=r'upgraded: it lacks microversion 1\.36'):
        claims.make([claim()])


@pytest.mark.parametrize(
    'fault', ['full', 'unknown code', 'no code', 'no error', 'no JSON', 'wrong type', 'deep']
)
def test_conflicts(books, claims, fault):
    """A candidate that somebody else has is asked for once; another may be tried."""
    books.faults.append(f'before {fault}')
    assert claims.make([claim()]) is None
    assert books.asked == ['PUT /allocations/server']


def test_contention(books, claims):
    """The same candidate is tried a few times, since nobody may have it."""
    books.faults += ['before contended'] * 3
    assert claims.make([claim()])
    assert len(books.asked) == 4
    books.faults += ['before contended'] * 4
    assert claims.make([claim('other')]) is None


def test_a_bad_request(books, claims, caplog):
    """Whoever wrote the flavor is to read what Placement says."""
    books.faults.append('before 400')
    assert claims.make([claim()]) is None
    assert ('nova.scheduler.client.report', logging.WARNING) in [
        record[:2] for record in caplog.record_tuples if 'no such resource class' in record[2]
    ]


@pytest.mark.parametrize('fault', ['after reset', 'after 500', 'after timeout', 'before 500'])
def test_a_server_that_holds_something(books, claims, fault):
    """It keeps that, whatever becomes of the claim."""
    books.held['server'] = [5, holds(OLD)]
    books.faults += [None, None, fault]
    with contextlib.suppress(PlacementUnavailable):
        [made] = claims.make([claim()])
        assert books.resources() == {'server': holds(ONE) | holds(OLD)}
        claims.give_back(made)
    claims.close(10)
    assert books.resources() == {'server': holds(OLD)}


def test_a_server_that_is_known_and_holds_nothing(books, claims):
    """Placement tells no generation of it; it is claimed for, and given back."""
    books.held['server'] = [0, {}]
    [made] = claims.make([claim()])
    assert books.resources() == {'server': holds(ONE)}
    claims.give_back(made)
    assert books.resources() == {}


@pytest.mark.parametrize('fault', ['before 500', 'before timeout', 'before full', 'before reset'])
def test_a_give_back_that_fails(books, claims, caplog, fault):
    """It is tried again by itself, and never raises."""
    [made] = claims.make([claim()])
    books.faults.append(fault)
    claims.give_back(made)
    claims.close(10)
    assert books.resources() == {}


def test_a_give_back_that_goes_on_failing(books, caplog):
    """The log names the server."""
    claims = claims_of(books)
    [made] = claims.make([claim()])
    books.faults += ['before 500'] * 1000
    claims.give_back(made)
    claims.close(0)
    [error] = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert error.startswith('Unable to delete allocation for instance server: given up')


def test_silence(books, claims):
    """After one has waited in vain others are refused at once, until a probe is answered."""
    probed = threading.Event()
    request = books.request

    def probing(path, *args, **how):
        if path.startswith('/resource_providers'):
            assert probed.wait(10)
        return request(path, *args, **how)

    books.request = probing
    books.faults.append('before timeout')
    for _ in range(3):
        with pytest.raises(PlacementUnavailable, match='slow'):
            claims.make([claim()])
    assert books.asked.count('PUT /allocations/server') == 1
    probed.set()
    for thread in threading.enumerate():
        if thread.name == 'breaker':
            thread.join(10)
    assert claims.make([claim('other')])


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
def test_whatever_happens(faults, steps):
    """A server holds what was claimed for it and what it held before, or only that if it was
    refused or given back; faults come in any order, and Placement may do late, and twice, what
    it was asked to."""
    books = Books()
    books.held['old'] = [5, holds(OLD)]
    expected = {'old': holds(OLD)}
    claims = claims_of(books)
    books.faults += faults
    placed = set()
    for step, stays in steps:
        servers = [server for server, _ in step]
        if placed.intersection(servers):
            continue  # whoever was told of a host does not ask again
        made = None
        with contextlib.suppress(PlacementUnavailable, ClaimFailed):
            made = claims.make([claim(*each) for each in step])
        if made:
            placed.update(servers)
        if made and stays:
            expected |= {server: holds(rp) | expected.get(server, {}) for server, rp in step}
        elif made:
            for each in made:
                claims.give_back(each)
    books.faults.clear()
    books.catch_up()
    claims.close(10)
    claims.api.close()
    assert books.resources() == expected
