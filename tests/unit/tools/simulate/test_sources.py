# SPDX-License-Identifier: Apache-2.0
"""Requests from recorded messages, and from records of decisions."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace

import pytest

from novasched.conf import redaction
from novasched.conf.settings import Settings
from novasched.observe.records.from_decision import kept_request
from novasched.observe.records.record import Record, from_json, to_json
from novasched.observe.records.store import UnreadableRecords
from novasched.rpc import decode, versions
from novasched.scheduler.model.flavor import Image
from novasched.scheduler.model.request import RequestedNetwork
from novasched.scheduler.requirements import numa
from novasched.tools.simulate import sources
from novasched.tools.simulate.sources import Unusable
from tests.lab.builders import a_flavor, a_group, a_host, a_request
from tests.lab.decision_records import RecordedScheduler, write_records
from tests.lab.wire import CALLS, CONTEXT, decoded

SETTINGS = Settings()
LINE = json.dumps({'request': CALLS['boot']})
GROUP = a_group('affinity', ['two', 'three'], name='a group')
LARGE_GROUP = a_group('affinity', map(str, range(5000)))


@pytest.fixture
def recorded(tmp_path):
    """A file of three lines; the last line is cut in the middle."""
    path = tmp_path / 'requests'
    path.write_text(f'{LINE}\n\n{LINE[: len(LINE) // 2]}\n')
    return path


@pytest.fixture
def decisions(tmp_path):
    """A file with decisions on servers of a flavor, with and without a group."""
    scheduler = RecordedScheduler(
        [a_host(ram=700)], settings=Settings(enabled_filters=('RamFilter',))
    )
    flavor = a_flavor(name='m1', memory_mb=600)
    requests = [
        a_request(instance_uuids=('one',), flavor=flavor),
        a_request(instance_uuids=('two',), flavor=flavor, group=GROUP),
        a_request(instance_uuids=('three',), flavor=flavor, group=LARGE_GROUP),
    ]
    write_records(tmp_path / 'decisions', scheduler, requests)
    return tmp_path / 'decisions'


def test_a_cut_line_is_reported_and_the_other_line_is_read(recorded):
    """A cut line is reported, and the other line is read."""
    found = sources.entries(str(recorded), SETTINGS)
    assert len(found.requests) == 1
    assert found.unread == ['line 3: no pair of request and reply (JSONDecodeError)']


@pytest.mark.parametrize(
    ('number', 'why'),
    [
        (':3', 'line 3: no pair'),
        (':2', 'no request in line 2'),
        (':9', 'no request in line 9'),
    ],
)
def test_a_recorded_request_is_found_by_line_number(recorded, number, why):
    """A line is named by number, or the first request counts."""
    assert sources.numbered(f'{recorded}:1') == sources.numbered(str(recorded))
    with pytest.raises(Unusable, match=why):
        sources.numbered(f'{recorded}{number}')


def test_only_complete_decision_records_are_repeated(decisions):
    """Complete records are repeated, and records without their large group are counted.
    A cut file cannot be read."""
    found = sources.entries(str(decisions), SETTINGS)
    one, two = found.requests
    assert (one.request.instance_uuids, one.hosts) == (('one',), ('host1',))
    assert (two.request.instance_uuids, two.hosts) == (('two',), ())
    assert two.request.instance_group == GROUP
    assert found.skipped == {'not kept: instance_group': 1}

    request = sources.remembered(str(decisions), 'one', SETTINGS)
    assert (request.flavor.name, request.flavor.memory_mb) == ('m1', 600)

    for name, why in (('three', 'instance_group'), ('four', 'no decision on four')):
        with pytest.raises(Unusable, match=why):
            sources.remembered(str(decisions), name, SETTINGS)
    whole = decisions.read_bytes()
    decisions.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnreadableRecords, match='damaged'):
        sources.entries(str(decisions), SETTINGS)


def test_a_damaged_record_is_skipped(decisions):
    """The other requests are repeated, and the damaged record is counted."""
    with closing(sqlite3.connect(decisions)) as base, base:
        base.execute("update decisions set record = 'x' where number = 1")

    found = sources.entries(str(decisions), SETTINGS)

    assert [entry.request.instance_uuids for entry in found.requests] == [('two',)]
    assert found.skipped['a damaged record'] == 1
    with pytest.raises(Unusable, match='a damaged decision record was skipped'):
        sources.remembered(str(decisions), 'one', SETTINGS)


@pytest.mark.parametrize(
    ('content', 'why'),
    [
        (None, 'No such file'),
        (b'', 'it is empty'),
        (b'\xff\xfe', 'no text'),
        (b'{}\n', 'line 1: no pair of request and reply'),
        (b'[' * 100_000, 'line 1: no pair of request and reply'),
    ],
)
def test_an_unusable_file_is_an_error_with_a_reason(tmp_path, content, why):
    """The error has the reason in one line."""
    if content is not None:
        (tmp_path / 'file').write_bytes(content)
    with pytest.raises(Unusable, match=why):
        sources.entries(str(tmp_path / 'file'), SETTINGS)


FLAVOR = a_flavor(
    name='m1',
    id=7,
    vcpus=4,
    memory_mb=8192,
    root_gb=9,
    ephemeral_gb=3,
    swap=5,
    extra_specs={'hw:numa_nodes': '1'},
)
REQUEST = a_request(
    flavor=FLAVOR,
    numa_topology=numa.topology(FLAVOR, {}),
    image={'hw_architecture': 'x86_64'},
    hints={'query': ['["=", 1]']},
    availability_zone='z',
    ignore_hosts=('a',),
    count=2,
)


def kept(request):
    request, missing_fields = kept_request(request)
    return Record('id', 0.0, 1, None, None, request, missing_fields=missing_fields)


@pytest.mark.parametrize('volume', [False, True])
def test_a_request_rebuilt_from_a_record_equals_the_original(volume):
    """The rebuilt request equals the original, with the NUMA cells of the flavor."""
    image = Image(
        'an image', disk_format='qcow2', properties={'hw_architecture': 'x86_64'}
    )
    request = replace(REQUEST, image=image, is_bfv=volume)
    assert kept(request).missing_fields == ()
    assert sources.rebuilt(kept(request), SETTINGS) == request


@pytest.mark.parametrize('case', CALLS)
def test_a_record_of_any_recorded_call_gives_the_request_back(case):
    """A record of any operation, read from a file, gives the request back, except for
    fields without an effect on a decision."""
    request = decode.request(versions.read(decoded(CALLS[case]['args'])), CONTEXT)
    found = sources.rebuilt(from_json(to_json(kept(request))), SETTINGS)
    assert found == replace(request, request_id=None, global_request_id=None)


RANDOM = 'kG7bQz2mXw9RtLp4'
redaction.learn([RANDOM])
MANY_NETWORKS = replace(REQUEST, requested_networks=(RequestedNetwork('n' * 36),) * 500)


@pytest.mark.parametrize(
    ('record', 'routed', 'why'),
    [
        (kept(MANY_NETWORKS), True, 'not kept: requested_networks'),
        (kept(MANY_NETWORKS), False, None),
        (
            kept(replace(REQUEST, scheduler_hints={'x': ('password=' + RANDOM, '')})),
            False,
            'not kept: scheduler_hints',
        ),
    ],
)
def test_a_missing_field_with_an_effect_on_decisions_is_named(record, routed, why):
    """A missing field is named, unless no decision depends on it."""
    settings = replace(SETTINGS, query_placement_for_routed_network_aggregates=routed)
    found = sources.rebuilt(record, settings)
    assert (why in found) if why else not isinstance(found, str)
