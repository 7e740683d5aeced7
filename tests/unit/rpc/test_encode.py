# SPDX-License-Identifier: Apache-2.0
"""Answers to callers of all releases."""

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
    """The JSON of a reply, with decoded allocation requests."""
    text = json.dumps(Serializer().serialize_entity(CONTEXT, reply))
    return without_order(json.loads(text, object_hook=_with_claim_read))


def _with_claim_read(data):
    name = 'allocation_request'
    if name in data:
        return {**data, name: json.loads(data[name])}
    return data


def a_selection(data):
    """The chosen host of a recorded Selection."""
    candidate = None
    if data['allocation_request'] != 'null':
        candidate = msgspec.json.decode(data['allocation_request'], type=Candidate)
    return Selection(
        compute_node_uuid=data['compute_node_uuid'],
        service_host=data['service_host'],
        nodename=data['nodename'],
        cell_uuid=data['cell_uuid'],
        availability_zone=data['availability_zone'],
        candidate=candidate,
    )


@pytest.mark.parametrize('case', REPLIES)
def test_an_answer_equals_the_answer_of_nova_for_the_same_hosts(case):
    """The answer equals nova's answer for the same hosts."""
    chosen = []
    for row in REPLIES[case]:
        chosen.append([a_selection(host['nova_object.data']) for host in row])
    assert sent(encode.reply(chosen, True, NEW)) == sent(REPLIES[case])


def changed(name, version, **data):
    """The primitive of a new object: all fields are changed."""
    return {**primitive(name, version, **data), 'nova_object.changes': sorted(data)}


def numa_limits(**networks):
    """The primitive of the limits of a NUMA topology, with networks."""
    fields = {'cpu_allocation_ratio': 16.0, 'ram_allocation_ratio': 1.5}
    if networks:
        fields['network_metadata'] = changed('NetworkMetadata', '1.0', **networks)
    return {'numa_topology': changed('NUMATopologyLimits', '1.1', **fields)}


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
def test_an_object_has_all_limits_and_a_dict_only_set_limits(limits, expected):
    """An object has all limits. A dict has the limits that are set."""
    chosen = Selection('node uuid', 'h', 'n', 'cell uuid', limits=limits)
    no_limits = dict.fromkeys(('numa_topology', 'vcpu', 'disk_gb', 'memory_mb'))
    [[selection]] = sent(encode.reply([[chosen]], True, NEW))
    assert selection['nova_object.data']['limits'] == changed(
        'SchedulerLimits', '1.0', **{**no_limits, **expected}
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
def test_an_answer_has_the_versions_that_the_release_knows(
    spec, release, selection, limits, claim
):
    """Objects and allocation requests have versions that the release of the RequestSpec
    knows, with the fields of the version."""
    version = (0,)
    if spec:
        version = tuple(map(int, spec.split('.')))
    objects = encode.reply([[CHOSEN]], True, version)
    dicts = encode.reply([[CHOSEN]], False, version)
    [[wire]] = Serializer().serialize_entity(CONTEXT, objects)
    [plain] = Serializer().serialize_entity(CONTEXT, dicts)

    data = wire['nova_object.data']
    zones = {'1.0': None, '1.1': 'zone'}
    assert wire['nova_object.version'] == selection
    assert data.get('availability_zone') == zones[selection]
    assert sorted(wire['nova_object.changes']) == sorted(data)

    allocation_request = {'allocations': ALLOCATIONS}
    if claim == '1.36':
        allocation_request['mappings'] = {'': ['rp']}
    assert data['allocation_request_version'] == claim
    assert json.loads(data['allocation_request']) == allocation_request

    for chosen_limits in (data['limits']['nova_object.data'], plain['limits']):
        numa = chosen_limits['numa_topology']
        assert numa['nova_object.version'] == limits
        assert ('network_metadata' in numa['nova_object.data']) is (limits == '1.1')
