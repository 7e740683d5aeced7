# SPDX-License-Identifier: Apache-2.0
"""Candidates that are worked out from the provider trees of an answer."""

import json
from dataclasses import replace

import pytest

from novasched.placement.base_answer import BaseAnswer
from novasched.placement.local_candidates import LocalCandidates, match, no_devices
from novasched.placement.tree_search import TreeSearch
from novasched.placement.trees import Group, TreeQuery
from novasched.placement.wire import UnusableAnswer
from novasched.scheduler.model.pci import HostDevices
from tests.lab.provider_trees import (
    ASKED_AT,
    Provider,
    a_host,
    a_query,
    a_rule,
    an_answer,
    answer_text,
)

GPU = ('VGPU', 1)
TWO_HOSTS = [*a_host('a', GPU, GPU, GPU, GPU), *a_host('b', GPU, GPU)]


def candidates_for(query, providers):
    answer = an_answer(providers)
    matched = match(answer, query, answer.capacity_left)
    return LocalCandidates([matched], ASKED_AT)


def providers_of(candidates):
    providers = []
    for candidate in candidates:
        providers.append(sorted(candidate.allocations))
    return providers


@pytest.mark.parametrize(
    ('query', 'hosts'),
    [
        (a_query(), ['a', 'b']),
        (a_query(GPU), ['a', 'b']),
        (a_query(GPU, GPU, isolate=True), ['a', 'b']),
        (a_query(GPU, GPU, GPU, isolate=True), ['a']),
        (a_query(('VGPU', 2)), []),
        (a_query(host=(('VCPU', 1), ('VGPU', 1))), ['a', 'b']),
        (a_query(host=(('VCPU', 17),)), []),
        (a_query(('CUSTOM_NOWHERE', 1)), []),
    ],
)
def test_hosts_with_a_fitting_tree_have_candidates(query, hosts):
    candidates = candidates_for(query, TWO_HOSTS)
    assert [*candidates] == hosts
    assert candidates.count == len(hosts)
    assert candidates.unchecked_amounts == {'VCPU': query.demand['VCPU']}
    for host in hosts:
        assert candidates[host]
        assert not candidates.exhausted([host])


def test_an_offer_knows_the_hosts_with_changed_candidates():
    """An offer knows the hosts whose candidates are others than before. An offer that
    filters have narrowed has the same candidates left, and an earlier offer knows
    nothing of later offers."""
    offer = candidates_for(a_query(GPU), TWO_HOSTS)
    narrowed = offer.narrowed({'a': offer['a'][:1]})
    beside = narrowed.beside(dict, no_devices, ['a'])
    without = beside.without('b', beside['b'][:1])

    changes = without.candidate_changes
    assert narrowed.candidate_changes.since(offer.candidate_changes.version) == set()
    assert changes.since(beside.candidate_changes.version) == {'b'}
    assert changes.since(narrowed.candidate_changes.version) == {'a', 'b'}
    assert offer.candidate_changes.since(changes.version) is None


@pytest.mark.parametrize('query', [a_query(), a_query(GPU)])
def test_devices_left_are_listed_by_host_with_the_largest_first(query):
    """Each provider of a class has a column, the largest amounts first."""
    providers = [
        *a_host('a', ('CUSTOM_X', 7), ('VGPU', 1), ('VGPU', 0), ('VGPU', 3)),
        *a_host('b', GPU),
        *a_host('c'),
    ]
    candidates = candidates_for(query, providers)
    left = candidates.devices_left(['c', 'a', 'away', 'b'], 'VGPU')
    assert left.tolist() == [[0, 0], [3, 1], [0, 0], [1, 0]]
    assert candidates.devices_left(['a'], 'CUSTOM_Y').tolist() == [[]]
    assert candidates.devices_left([], 'VGPU').shape == (0, 0)


def test_a_candidate_has_the_form_of_an_allocation_request():
    """A candidate has the form of Placement's allocation requests."""
    candidates = candidates_for(a_query(GPU, GPU, isolate=True), TWO_HOSTS)
    [candidate] = candidates['b']
    assert json.loads(candidate.body()) == {
        'allocations': {
            'b': {'resources': {'VCPU': 1}},
            'b-0': {'resources': {'VGPU': 1}},
            'b-1': {'resources': {'VGPU': 1}},
        },
        'mappings': {'': ['b'], '_0': ['b-0'], '_1': ['b-1']},
    }
    with pytest.raises(KeyError):
        candidates['a-0']


def test_pending_claims_take_devices_until_no_candidate_is_left():
    """Pending claims take devices, until no candidate of a host is left."""
    candidates = candidates_for(a_query(GPU), TWO_HOSTS)

    beside = candidates.beside(lambda: {'b-0': {'VGPU': 1}}, no_devices, ['b'])
    assert providers_of(beside['b']) == [['b', 'b-1']]
    assert providers_of(candidates['b']) == [['b', 'b-0']]
    assert not beside.exhausted(['a', 'b'])

    pending = {'b-0': {'VGPU': 1}, 'b-1': {'VGPU': 1}}
    beside = candidates.beside(lambda: pending, no_devices, ['b'])
    assert not beside['b']
    assert [*beside.exhausted(['a', 'b'])] == ['b']


def test_filtered_candidates_stay_until_pending_claims_change():
    """Candidates that a filter left stay, until the pending claims on the host
    change."""
    candidates = candidates_for(a_query(GPU), TWO_HOSTS)
    narrowed = candidates.narrowed({'a': [], 'b': []})
    beside = narrowed.beside(dict, no_devices, ['b'])
    assert not beside['a']
    assert beside['b']


def test_each_split_of_devices_over_numa_cells_has_a_candidate():
    """Devices of different NUMA cells are not interchangeable."""
    cells = {'a-0': 0, 'a-1': 0, 'a-2': 1, 'a-3': 1}
    candidates = candidates_for(a_query(GPU, GPU, isolate=True), TWO_HOSTS)
    assert len(candidates['a']) == 1

    beside = candidates.beside(dict, lambda host: HostDevices(cells), ())
    splits = set()
    for candidate in beside['a']:
        devices = candidate.allocations.keys() & cells.keys()
        splits.add(tuple(sorted(cells[device] for device in devices)))
    assert splits == {(0, 0), (0, 1), (1, 1)}
    assert len(beside['a']) == 3


def test_the_next_candidate_avoids_devices_of_a_refused_claim():
    """The next candidate avoids the devices of the refused one, if the host has other
    devices."""
    candidates = candidates_for(a_query(GPU), TWO_HOSTS)
    [refused] = candidates['b']
    assert providers_of(candidates.without('b', [refused])['b']) == [['b', 'b-1']]
    [last] = candidates.without('b', [refused])['b']
    assert candidates.without('b', [refused, last]) is candidates


MANY_GROUPS = a_query(*(('VGPU', amount) for amount in range(52, 61)))
LARGE_DEVICES = [('VGPU', amount) for amount in range(89, 101)]
"""Groups that no device serves two of, on devices of slightly different sizes."""


def test_a_search_that_is_given_up_has_a_candidate():
    """The search for the fewest devices takes too long: the sums suggest fewer devices
    than groups."""
    candidates = candidates_for(MANY_GROUPS, a_host('a', *LARGE_DEVICES))
    assert [*candidates] == ['a']
    assert len(candidates['a'][0].allocations) == 10


def test_the_fuller_device_is_offered_first():
    devices = [('VGPU', 4), ('VGPU', 2), ('VGPU', 3)]
    candidates = candidates_for(a_query(('VGPU', 2)), a_host('a', *devices))
    assert providers_of(candidates['a'])[0] == ['a', 'a-1']


@pytest.mark.parametrize(
    ('required', 'searches'), [([], 1), (['CUSTOM_OF_3'], 2), (['CUSTOM_ALL'], 1)]
)
def test_hosts_that_differ_in_other_traits_share_a_search(
    monkeypatch, required, searches
):
    """Traits that a query does not name tell no hosts apart."""
    providers = []
    for number in range(20):
        traits = ('CUSTOM_ALL', f'CUSTOM_OF_{number}')
        for provider in a_host(f'h{number}', GPU, GPU):
            providers.append(replace(provider, traits=traits))
    counted = []

    def search(*arguments):
        counted.append(arguments)
        return TreeSearch(*arguments)

    monkeypatch.setattr('novasched.placement.base_answer.TreeSearch', search)
    monkeypatch.setattr('novasched.placement.local_candidates.TreeSearch', search)
    groups = (Group('', (('VCPU', 1),)), Group('_0', (GPU,), a_rule(*required)))
    candidates = candidates_for(TreeQuery(groups), providers)
    assert len(counted) <= searches
    offered = [candidates[host][0] for host in candidates]
    assert len(offered) == (1 if required == ['CUSTOM_OF_3'] else 20)
    assert len(counted) <= searches + 1


def test_an_answer_with_a_sharing_provider_is_unusable():
    """A provider that shares its inventory may serve hosts of other trees."""
    shared = Provider('disk', {'DISK_GB': 10}, traits=('MISC_SHARES_VIA_AGGREGATE',))
    with pytest.raises(UnusableAnswer, match='share'):
        an_answer([*TWO_HOSTS, shared])


@pytest.mark.parametrize(
    'providers',
    [
        [Provider('a', {'VCPU': 2**70})],
        [Provider('a', {'VCPU': 1}), Provider('b', {}, 'c'), Provider('c', {}, 'b')],
    ],
    ids=['more than 64 bits', 'a loop of parents'],
)
def test_an_answer_with_invalid_amounts_or_parents_is_unusable(providers):
    text = json.loads(answer_text(providers))
    for summary in text['provider_summaries'].values():
        summary['root_provider_uuid'] = 'a'
    with pytest.raises(UnusableAnswer, match=r'64 bits|no tree'):
        BaseAnswer(json.dumps(text).encode(), ASKED_AT)


@pytest.mark.parametrize('missing', ['card', 'host'])
def test_an_answer_without_the_summary_of_a_provider_is_unusable(missing):
    text = json.loads(answer_text([Provider('host', {}), Provider('card', {}, 'host')]))
    [request] = text['allocation_requests']
    request['allocations'] = {'card': {'resources': {}}}
    del text['provider_summaries'][missing]
    with pytest.raises(UnusableAnswer, match='no summary'):
        BaseAnswer(json.dumps(text).encode(), ASKED_AT)


def test_a_forbidden_custom_trait_of_no_provider_is_unknown():
    """Placement may not know a custom trait that no provider has."""
    answer = an_answer(TWO_HOSTS)
    query = a_query(GPU, root=a_rule(forbidden=['CUSTOM_UNKNOWN', 'HW_CPU_X86_AVX']))
    assert answer.unknown_traits(query) == {'CUSTOM_UNKNOWN'}
