# SPDX-License-Identifier: Apache-2.0
"""What each release can read of an answer."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from novasched.model.candidate import Candidate
from novasched.model.numa import TopologyLimits
from novasched.model.selection import Selection
from novasched.objects import RequestSpec
from novasched.rpc import encode
from novasched.rpc.reader import Reader
from novasched.rpc.serializer import Serializer
from tests.unit.rpc.wire import CONTEXT, primitive

ALLOCATIONS = {'rp': {'resources': {'VCPU': 1}}}
CANDIDATE = msgspec.json.decode(
    json.dumps({'allocations': ALLOCATIONS, 'mappings': {'': ['rp']}}), type=Candidate
)
LIMITS = {'numa_topology': TopologyLimits(16.0, 1.5, frozenset({'physnet'}), False)}
CHOSEN = Selection('uuid', 'h', 'n', 'cell', 'zone', CANDIDATE, LIMITS)

RELEASES = [
    # RequestSpec, first in     Selection, limits, version of a claim
    (None, 'Kilo',              '1.0', '1.0', '1.12'),
    ('1.5', 'Mitaka',           '1.0', '1.0', '1.12'),
    ('1.8', 'Ocata to Queens',  '1.0', '1.0', '1.12'),
    ('1.11', 'Rocky',           '1.0', '1.1', '1.12'),
    ('1.12', 'Stein and Train', '1.0', '1.1', '1.36'),
    ('1.13', 'Ussuri',          '1.1', '1.1', '1.36'),
    ('1.15', '2024.1',          '1.1', '1.1', '1.36'),
    ('1.99', 'to come',         '1.1', '1.1', '1.36'),
]  # fmt: skip


@pytest.mark.parametrize(
    ('spec', 'selection', 'limits', 'claim'),
    [(row[0], *row[2:]) for row in RELEASES],
    ids=[row[1] for row in RELEASES],
)
def test_versions(spec: str | None, selection: str, limits: str, claim: str) -> None:
    """Objects go out in versions that the release of the RequestSpec knows, with the fields
    that these have; so does what it is to send to Placement."""
    found = as_sent(spec, return_objects=True)
    data = found['nova_object.data']
    assert found['nova_object.version'] == selection
    assert data.get('availability_zone') == (None if selection == '1.0' else 'zone')
    assert sorted(found['nova_object.changes']) == sorted(data)
    check_limits(data['limits']['nova_object.data']['numa_topology'], limits)
    assert data['allocation_request_version'] == claim
    mappings = {} if claim == '1.12' else {'mappings': {'': ['rp']}}
    assert json.loads(data['allocation_request']) == {'allocations': ALLOCATIONS, **mappings}
    check_limits(as_sent(spec, return_objects=False)['limits']['numa_topology'], limits)


def check_limits(found: dict[str, Any], version: str) -> None:
    """Networks are named from 1.1 on."""
    assert found['nova_object.version'] == version
    assert ('network_metadata' in found['nova_object.data']) is (version == '1.1')


def as_sent(spec: str | None, return_objects: bool) -> Any:
    """The only choice, as the sender of such a RequestSpec gets it."""
    sender = (
        None if spec is None else RequestSpec.obj_from_primitive(primitive('RequestSpec', spec))
    )
    reply = Serializer().serialize_entity(
        CONTEXT, encode.reply([[CHOSEN]], return_objects, Reader.of(sender))
    )
    return reply[0][0] if return_objects else reply[0]
