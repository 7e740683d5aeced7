# SPDX-License-Identifier: Apache-2.0
"""Compares nova's host aggregates with Placement's: the finding on each difference."""

import pytest

from novasched.conf.settings import Settings
from novasched.placement.wire import ResourceProvider
from novasched.scheduler.model.host import Aggregate
from novasched.tools.check.aggregates import NovaAggregates, compare

ZONE = {'availability_zone': 'az'}
PROJECT = {'filter_tenant_id_2': 'p'}
ISOLATED = {'trait:CUSTOM_GPU': 'required'}
NODES = {
    'a': {'node-a'},
    'b': {'node-b'},
    'c': {'node-c'},
    'ironic': {'node-1', 'node-2'},
}
EVERY = set().union(*NODES.values())


def said(
    metadata,
    hosts,
    members,
    name='agg',
    providers=EVERY,
    settings=None,
    nodes=NODES,
    **of_hosts,
):
    """The findings on an aggregate: (level, subject), and the texts joined."""
    uuid = 'uuid-1'
    nova = NovaAggregates(
        {uuid: Aggregate(1, uuid, name, metadata)}, {uuid: hosts}, nodes, **of_hosts
    )
    providers_there = [*map(ResourceProvider, members.keys(), members.values())]
    findings = compare(
        nova,
        {uuid: providers_there},
        lambda: map(ResourceProvider, providers, providers),
        Settings(**(settings or {})),
    )

    subjects = []
    texts = []
    for finding in findings:
        subjects.append((str(finding.level), finding.subject))
        texts.append(finding.text)
    return subjects, '\n'.join(texts)


def roots(*uuids):
    """Providers without a parent."""
    return dict(zip(uuids, uuids, strict=True))


FINE = [('ok', 'members')]
ZONES = '[scheduler] query_placement_for_availability_zone'
TENANTS = 'limit_tenants_to_placement_aggregate'
ISOLATION = 'enable_isolated_aggregate_filtering'
SEGMENTS = 'query_placement_for_routed_network_aggregates'


@pytest.mark.parametrize(
    ('hosts', 'members', 'expected'),
    [
        ({'a', 'b'}, roots('node-a', 'node-b'), ''),
        (set(), {}, ''),
        ({'a', 'b'}, roots('node-a'), 'missing in Placement: 1 (b of agg)'),
        ({'a'}, roots('node-a', 'node-c'), 'in Placement alone: 1 (c of agg)'),
        ({'a'}, {'vgpu-of-a': 'node-a'}, 'missing in Placement: 1 (a of agg)'),
        (
            {'a'},
            {'node-a': 'node-a', 'vgpu-of-c': 'node-c'},
            'in Placement alone: 1 (c of agg)',
        ),
        ({'a'}, {'node-a': 'node-a', 'vgpu-of-a': 'node-a'}, ''),
        ({'a'}, roots('node-a', 'shared-disk', 'node-of-a-former-host'), ''),
        ({'a', 'b'}, roots('node-c'), 'missing in Placement: 2 (a of agg, b of agg)'),
        ({'a', 'b'}, roots('node-c'), 'in Placement alone: 1 (c of agg)'),
    ],
)
def test_differing_members_are_found_in_both_directions(hosts, members, expected):
    """Each difference is found in both directions. Providers of no host are ignored."""
    found, text = said(ZONE, hosts, members)
    assert found == ([('error', ZONES)] if expected else FINE)
    assert expected in text


@pytest.mark.parametrize(
    ('metadata', 'settings', 'expected'),
    [
        (ZONE, {}, [('error', ZONES)]),
        (
            ZONE,
            {'query_placement_for_availability_zone': False},
            [('warning', 'other aggregates')],
        ),
        (PROJECT, {}, [('warning', 'other aggregates')]),
        (PROJECT, {TENANTS: True}, [('error', f'[scheduler] {TENANTS}')]),
        (ISOLATED, {}, [('warning', 'other aggregates')]),
        (ISOLATED, {ISOLATION: True}, [('error', f'[scheduler] {ISOLATION}')]),
        (
            {'trait:CUSTOM_GPU': 'forbidden'},
            {ISOLATION: True},
            [('warning', 'other aggregates')],
        ),
        (
            {},
            {TENANTS: True, ISOLATION: True, SEGMENTS: True},
            [('warning', 'other aggregates')],
        ),
        (
            {**ZONE, **PROJECT, **ISOLATED},
            {TENANTS: True, ISOLATION: True},
            [
                ('error', ZONES),
                ('error', f'[scheduler] {TENANTS}'),
                ('error', f'[scheduler] {ISOLATION}'),
            ],
        ),
    ],
)
def test_a_difference_is_an_error_if_an_option_needs_the_aggregate(
    metadata, settings, expected
):
    """A difference is an error if an enabled option makes Placement use the
    aggregate."""
    for members in ({}, roots('node-a', 'node-b')):
        found, _ = said(metadata, {'a'}, members, settings=settings)
        assert found == expected


def test_aggregates_of_neutron_segments_are_recognised():
    """Aggregates of segments are recognised by the names from Neutron."""
    name = 'Neutron segment id 7b4e'
    assert said({}, {'a'}, {}, name)[0] == [('warning', 'other aggregates')]
    found, _ = said({}, {'a'}, {}, name, settings={SEGMENTS: True})
    assert found == [('error', f'[scheduler] {SEGMENTS}')]


def test_a_finding_names_the_command_to_correct_the_members():
    """nova-manage adds members and removes no member."""
    _, missing = said(ZONE, {'a'}, {})
    _, foreign = said(ZONE, set(), roots('node-a'))
    assert missing.endswith(': run nova-manage placement sync_aggregates')
    assert 'openstack resource provider aggregate set' in foreign
    assert foreign.endswith('nova-manage placement sync_aggregates does neither')


@pytest.mark.parametrize(
    ('hosts', 'of_hosts', 'providers', 'subject'),
    [
        ({'lost'}, {'unmapped': {'lost'}}, EVERY, 'hosts of no cell'),
        ({'young'}, {}, EVERY, 'hosts without a compute node'),
        ({'a'}, {}, EVERY - {'node-a'}, 'hosts without a provider'),
    ],
)
def test_a_host_that_cannot_be_a_member_is_a_warning(
    hosts, of_hosts, providers, subject
):
    """Hosts without a cell, node or provider are found apart, each with a remedy."""
    found, text = said(ZONE, hosts, {}, providers=providers, **of_hosts)
    assert found == [('warning', subject)]
    assert text.startswith(f'1 ({", ".join(hosts)}): ')


def test_hosts_in_unread_and_disabled_cells_are_not_compared():
    """Hosts in disabled cells and in cells without an answer are not compared."""
    found, _ = said(ZONE, {'far', 'off'}, {}, unread={'far'}, disabled={'off'})
    assert found == [('note', 'hosts of other cells'), *FINE]


def test_each_compute_node_of_a_host_must_be_a_member():
    """Each node is a member. nova-manage ends at a host with several nodes."""
    both = roots('node-1', 'node-2')
    assert said(ZONE, {'ironic'}, both)[0] == FINE
    several = ('warning', 'hosts of several compute nodes')
    assert said(ZONE, {'ironic'}, roots('node-1'))[0] == [('error', ZONES), several]
    assert said(ZONE, {'ironic', 'a'}, both)[0] == [('error', ZONES), several]
    assert said(ZONE, {'ironic'}, both | roots('node-a'))[0] == [('error', ZONES)]


def test_a_finding_counts_all_hosts_and_names_a_few():
    """A finding counts all hosts and names a few. Without a missing member, Placement
    is not asked for all providers."""
    nodes = {f'h{number:02}': {f'node-{number}'} for number in range(12)}
    known = set().union(*nodes.values())
    _, text = said(ZONE, set(nodes), {}, nodes=nodes, providers=known)

    assert (
        ' 12 (h00 of agg, h01 of agg, h02 of agg, h03 of agg, h04 of agg, ...), '
        in text
    )

    nova = NovaAggregates({'u': Aggregate(1, 'u', 'agg')}, {'u': {'h01'}}, nodes)
    [fine] = compare(
        nova, {'u': [ResourceProvider('node-1', 'node-1')]}, pytest.fail, Settings()
    )
    assert fine.text == 'the same in Placement, in all aggregates (1)'
