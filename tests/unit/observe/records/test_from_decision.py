# SPDX-License-Identifier: Apache-2.0

import pytest

from novasched.conf import redaction
from novasched.observe.records import render
from novasched.observe.records.from_decision import (
    MAX_REQUEST_CHARACTERS,
    OTHERS,
    grouped,
    kept_request,
)
from novasched.observe.records.record import Record, from_json, to_json
from novasched.scheduler.model.request import Destination, Origin, Retry
from tests.lab.builders import a_flavor, a_group, a_request, a_uuid, numbered_uuids

LONG = 'y' * 20_000
RANDOM = 'kG7bQz2mXw9RtLp4'
MEMBERS = frozenset(numbered_uuids('member', 1000))


@pytest.mark.parametrize(
    'fields',
    [
        {},
        {'count': 2},
        {'availability_zone': 'west'},
        {'hints': {'same_host': ['a', 'b'], 'query': ['["=", 1]']}},
        {'extra_specs': {'hw:x': '1', 'long': 'y' * 999}},
        {'image': {'hw_x': 'y', 'hw_n': 2, 'traits_required': ['X']}},
        {'group': a_group('affinity')},
        {'requested_destination': Destination(host='a', node='n', cell_uuid='c')},
        {'retry': Retry(2, (('a', 'a'),))},
        {'ignore_hosts': ('a',), 'force_hosts': ('b',)},
        {'flavor': a_flavor(name='m1', vcpus=4, memory_mb=8, ephemeral_gb=2, swap=9)},
        {'is_bfv': True},
    ],
)
def test_a_request_of_usual_size_is_kept_whole(fields):
    """A request of the usual size is kept as it is."""
    request = a_request(**fields)
    assert kept_request(request) == (request, ())


def test_all_instances_of_a_request_are_kept():
    """All instances are kept, however many: decisions are found by their UUIDs."""
    request = a_request(count=1000)
    assert kept_request(request) == (request, ())


@pytest.mark.parametrize(
    ('fields', 'name'),
    [
        ({'availability_zone': LONG}, 'availability_zone'),
        ({'hints': {'x': [LONG]}}, 'scheduler_hints'),
        ({'hints': {'x': [f'password={RANDOM}']}}, 'scheduler_hints'),
        ({'extra_specs': {'hw:x': LONG}}, 'flavor'),
        ({'image': {'hw_x': LONG}}, 'image'),
        ({'image': {'hw_x': b'y'}}, 'image'),
        ({'image': {'hw_x': ('a', 'b')}}, 'image'),
        ({'group': a_group('affinity', MEMBERS)}, 'instance_group'),
        ({'ignore_hosts': tuple(MEMBERS)}, 'ignore_hosts'),
    ],
)
def test_long_and_secret_fields_are_shortened_and_named(monkeypatch, fields, name):
    """A field is shortened and named if its JSON is too long, holds a secret, or does
    not decode to the same value. The record has its JSON all the same."""
    monkeypatch.setattr(redaction.KNOWN, '__dict__', vars(redaction.Secrets([RANDOM])))
    request, missing_fields = kept_request(a_request(**fields))
    assert missing_fields == (name,)
    record = Record('id', 0.0, 1, None, None, request, missing_fields=missing_fields)
    text = to_json(record)
    assert len(text) < MAX_REQUEST_CHARACTERS
    assert RANDOM.encode() not in text
    assert from_json(text).missing_fields == (name,)
    assert [name for name, _ in render.facts(record)][:2] == ['servers', 'asked']


def test_the_first_of_several_long_fields_is_kept_whole():
    """The first fields are kept whole as far as there is room."""
    long = {'x': 'y' * (MAX_REQUEST_CHARACTERS - 500)}
    request, missing_fields = kept_request(
        a_request(extra_specs=long, availability_zone='y' * 600)
    )
    assert missing_fields == ('availability_zone',)
    assert len(request.availability_zone) < 600
    assert request.flavor.extra_specs == long


def test_a_record_does_not_keep_the_message_of_the_request():
    """A record has nothing of the message that the request was read from."""
    origin = Origin('the whole message', 'its context')
    request = a_request(origin=origin, request_id='req-1')
    kept, _ = kept_request(request)
    assert (kept.origin, kept.request_id) == (None, None)


ONE = a_uuid('one')
TWO = a_uuid('two')


@pytest.mark.parametrize(
    ('reasons', 'causes'),
    [
        ({}, []),
        ({'disabled': 3, 'down': 5}, [('down', 5), ('disabled', 3)]),
        (
            {'2 vCPUs free, 4 wanted': 1, '0 vCPUs free, 4 wanted': 2},
            [('0 to 2 vCPUs free, 4 wanted', 3)],
        ),
        (
            {'-512 MiB free': 1, '1.5 MiB free': 1, '10 MiB free': 1},
            [('-512 to 10 MiB free', 3)],
        ),
        (
            {"'ram' is '4', '>= 9' wanted": 1, "'ram' is '5', '>= 9' wanted": 1},
            [("'ram' is '4 to 5', '>= 9' wanted", 2)],
        ),
        ({f'has {ONE}': 1, f'has {TWO}': 1}, [('has this or that', 2)]),
        (
            {f'group {ONE} is on 5 hosts': 1, f'group {ONE} is on 6 hosts': 1},
            [(f'group {ONE} is on 5 to 6 hosts', 2)],
        ),
        (
            {'10.0.0.1 is not in 10.0.1.0/24': 1, '10.0.0.2 is not in 10.0.1.0/24': 1},
            [('this or that is not in 10.0.1.0/24', 2)],
        ),
        (
            {'host-1 lacks x86_64': 1, 'host-2 lacks x86_64': 1},
            [('host-1 lacks x86_64', 1), ('host-2 lacks x86_64', 1)],
        ),
        ({'1e+06 MiB free': 1, '5 MiB free': 1}, [('5 to 1e+06 MiB free', 2)]),
        (
            {letter: 9 - n for n, letter in enumerate('abcdefg')},
            [('a', 9), ('b', 8), ('c', 7), ('d', 6), (OTHERS, 12)],
        ),
    ],
)
def test_reasons_that_differ_only_in_numbers_are_grouped(reasons, causes):
    """Reasons that differ only in numbers are one reason. A digit in a name is no
    number."""
    assert [(count.reason, count.hosts) for count in grouped(reasons)] == causes


def test_a_text_becomes_a_short_line_without_secrets(monkeypatch):
    """A text is one line of a bounded length without secrets."""
    monkeypatch.setattr(redaction.KNOWN, '__dict__', vars(redaction.Secrets([RANDOM])))
    assert redaction.one_line(f'a\n  b {RANDOM}') == 'a b ***'
    assert len(redaction.one_line('x' * 999)) == redaction.MAX_LINE_CHARACTERS
    secret = f'a\n{RANDOM}'
    assert redaction.one_line_each([secret, 'b', 'b']) == {secret: 'a ***', 'b': 'b'}
