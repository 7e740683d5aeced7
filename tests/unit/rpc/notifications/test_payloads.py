# SPDX-License-Identifier: Apache-2.0
"""Payloads contain no secrets, and leave the request unchanged.
tests/functional/test_notifications.py compares all fields with nova's payloads."""

from datetime import datetime

import pytest

from novasched.rpc.notifications import payloads
from novasched.rpc.notifications.payloads import data
from novasched.scheduler.model.request import Destination
from tests.lab.builders import a_request
from tests.lab.wire import CALLS, MADE, context_of, primitive

SENT = CALLS['boot']['args']['spec_obj']
EVERYTHING = data(MADE['everything']['spec_obj'])
CALLER = {
    **context_of(CALLS['boot']),
    'auth_token': 'secret',
    'remote_address': '192.0.2.1',
}
NOW = datetime(2026, 11, 21, 12, 0, 0, 5)


@pytest.mark.parametrize(
    ('before', 'aggregates', 'after'),
    [
        ({}, [], {}),
        ({'aggregates': ['b,a']}, ['ab', 'c'], {'aggregates': ['b,a', 'c']}),
    ],
)
def test_aggregates_of_prefilters_are_added_to_the_destination(
    before, aggregates, after
):
    """Aggregates of prefilters follow the aggregates of the message, which stay
    unchanged."""
    wanted = Destination(aggregates=tuple(map(frozenset, aggregates)))
    destination = None
    if before:
        destination = primitive('Destination', '1.4', **before)
    spec = {**SENT, payloads.DATA: {**data(SENT), 'requested_destination': destination}}
    fields = payloads.at_start(spec, a_request(requested_destination=wanted))
    assert data(fields['requested_destination']) == after
    assert destination is None or data(destination) == before


def test_the_context_shows_no_secret():
    """The context of a message contains no secret. PCI requests in the legacy format
    contain the context, too."""
    wire = payloads.context_on_wire(CALLER, NOW)
    assert wire['timestamp'] == '2026-11-21T12:00:00.000005'
    context = payloads.context_attributes(wire)
    payload = payloads.legacy_payload(EVERYTHING, context)
    instance = payload['request_spec']['instance_properties']
    assert wire['user_id'] == CALLER['user']
    assert instance['pci_requests']['_context']['user_id'] == CALLER['user']
    assert 'secret' not in str([wire, instance])
    assert '192.0.2.1' not in str([wire, instance])


CELL = primitive(
    'CellMapping', '1.1', uuid='u', disabled=False, database_connection='a://secret'
)
IMAGE_PROPERTIES = primitive(
    'ImageMetaProps', '1.44', hw_ephemeral_encryption_secret_uuid='secret'
)


@pytest.mark.parametrize(
    'fields',
    [
        {
            'requested_destination': primitive(
                'Destination', '1.4', host=None, cell=CELL
            )
        },
        {'image': primitive('ImageMeta', '1.8', properties=IMAGE_PROPERTIES)},
    ],
)
def test_versioned_fields_show_no_secret(fields):
    """The database of a cell and the key of a disk are not sent."""
    assert 'secret' not in str(payloads.versioned_payload({**EVERYTHING, **fields}))


def test_only_the_group_rule_known_to_nova_is_sent_as_a_text():
    """The only rule of nova is sent, with the number as a text."""
    group = primitive(
        'InstanceGroup', '1.11', _rules={'max_server_per_host': ' 3', 'x': 'y'}
    )
    payload = payloads.versioned_payload({**EVERYTHING, 'instance_group': group})
    assert data(data(payload)['instance_group'])['rules'] == {
        'max_server_per_host': '3'
    }


@pytest.mark.parametrize(
    'part', [None, {}, ' ', 5, [], {'nova_object.name': 'VirtCPUTopology'}]
)
def test_a_malformed_part_of_a_request_has_no_fields(part):
    """A malformed part of a request has no fields."""
    assert data(part) == {}
