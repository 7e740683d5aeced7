# SPDX-License-Identifier: Apache-2.0
"""Choices, as callers of each release read them."""

import json

import msgspec
import pytest

from novasched.rpc import encode
from novasched.rpc.server import Serializer
from novasched.scheduler.model.candidate import Candidate
from novasched.scheduler.model.host import Selection
from novasched.scheduler.model.numa import TopologyLimits
from tests.lab.wire import CONTEXT, REPLIES, primitive, without_order

NEW = (1, 15)


def sent(reply):
    """A reply as it travels, with the text of each allocation request read."""
    text = json.dumps(Serializer().serialize_entity(CONTEXT, reply))
    return without_order(json.loads(text, object_hook=_with_claim_read))


def _with_claim_read(data):
    name = 'allocation_request'
    if name in data:
        return {**data, name: json.loads(data[name])}
    return data


def a_selection(data):
    """The choice that a recorded Selection tells of."""
    names = (
        'compute_node_uuid',
        'service_host',
        'nodename',
        'cell_uuid',
        'availability_zone',
    )
    text = data['allocation_request']
    candidate = None if text == 'null' else msgspec.json.decode(text, type=Candidate)
    return Selection(**{name: data[name] for name in names}, candidate=candidate)


@pytest.mark.parametrize('case', REPLIES)
def test_as_nova_answers(case):
    """A choice is answered with what nova answered for the same choice."""
    chosen = [
        [a_selection(each['nova_object.data']) for each in row] for row in REPLIES[case]
    ]
    assert sent(encode.reply(chosen, True, NEW)) == sent(REPLIES[case])


def changed(name, version, **data):
    """An object of which every field is marked as changed, as one that was just
    made."""
    return {**primitive(name, version, **data), 'nova_object.changes': sorted(data)}


def numa_limits(**networks):
    """The limits of a NUMA topology as they travel, with these networks."""
    metadata = changed('NetworkMetadata', '1.0', **networks)
    ratios = {'cpu_allocation_ratio': 16.0, 'ram_allocation_ratio': 1.5}
    more = {'network_metadata': metadata} if networks else {}
    return {'numa_topology': changed('NUMATopologyLimits', '1.1', **ratios, **more)}


@pytest.mark.parametrize(
    ('limits', 'expected'),
    [
        ({}, {}),
        (
            {'memory_mb': 1024.5, 'disk_gb': 10, 'vcpu': 4.0},
            {'memory_mb': 1024, 'disk_gb': 10, 'vcpu': 4},
        ),
        ({'memory_mb': None, 'zeal': 3}, {}),
        ({'numa_topology': TopologyLimits(16.0, 1.5)}, numa_limits()),
        (
            {'numa_topology': TopologyLimits(16.0, 1.5, frozenset({'p1'}), True)},
            numa_limits(physnets=['p1'], tunneled=True),
        ),
        (
            {'numa_topology': TopologyLimits(16.0, 1.5, frozenset(), False)},
            numa_limits(physnets=[], tunneled=False),
        ),
    ],
)
def test_limits(limits, expected):
    """An object names all limits; a dict names those that are set."""
    chosen = Selection('node uuid', 'h', 'n', 'cell uuid', limits=limits)
    names = ('numa_topology', 'vcpu', 'disk_gb', 'memory_mb')
    ((only,),) = sent(encode.reply([[chosen]], True, NEW))
    assert only['nova_object.data']['limits'] == changed(
        'SchedulerLimits', '1.0', **{name: expected.get(name) for name in names}
    )
    assert sent(encode.reply([[chosen]], False, NEW)) == [
        {'host': 'h', 'nodename': 'n', 'limits': expected}
    ]


ALLOCATIONS = {'rp': {'resources': {'VCPU': 1}}}
CANDIDATE = msgspec.json.decode(
    json.dumps({'allocations': ALLOCATIONS, 'mappings': {'': ['rp']}}), type=Candidate
)
CHOSEN_LIMITS = {
    'numa_topology': TopologyLimits(16.0, 1.5, frozenset({'physnet'}), False)
}
CHOSEN = Selection('uuid', 'h', 'n', 'cell', 'zone', CANDIDATE, CHOSEN_LIMITS)


@pytest.mark.parametrize(('spec', 'release', 'selection', 'limits', 'claim'), [
    # RequestSpec, first in     Selection, limits, version of a claim
    (None, 'Kilo',              '1.0', '1.0', '1.12'),
    ('1.5', 'Mitaka',           '1.0', '1.0', '1.12'),
    ('1.8', 'Ocata to Queens',  '1.0', '1.0', '1.12'),
    ('1.11', 'Rocky',           '1.0', '1.1', '1.12'),
    ('1.12', 'Stein and Train', '1.0', '1.1', '1.36'),
    ('1.13', 'Ussuri',          '1.1', '1.1', '1.36'),
    ('1.15', '2024.1',          '1.1', '1.1', '1.36'),
    ('1.99', 'to come',         '1.1', '1.1', '1.36'),
])  # fmt: skip
def test_versions(spec, release, selection, limits, claim):
    """Objects go out in versions that the release of the RequestSpec knows, with the
    fields that these have; so does what it is to send to Placement."""
    version = tuple(map(int, spec.split('.'))) if spec else (0,)
    replies = (
        encode.reply([[CHOSEN]], as_objects, version) for as_objects in (True, False)
    )
    [[found]], [plain] = (
        Serializer().serialize_entity(CONTEXT, reply) for reply in replies
    )
    data = found['nova_object.data']
    assert found['nova_object.version'] == selection
    assert data.get('availability_zone') == (None if selection == '1.0' else 'zone')
    assert sorted(found['nova_object.changes']) == sorted(data)
    assert data['allocation_request_version'] == claim
    mappings = {} if claim == '1.12' else {'mappings': {'': ['rp']}}
    assert json.loads(data['allocation_request']) == {
        'allocations': ALLOCATIONS,
        **mappings,
    }
    for each in (data['limits']['nova_object.data'], plain['limits']):
        numa = each['numa_topology']
        assert numa['nova_object.version'] == limits
        assert ('network_metadata' in numa['nova_object.data']) is (limits == '1.1')
