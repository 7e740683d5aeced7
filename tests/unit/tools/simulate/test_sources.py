# SPDX-License-Identifier: Apache-2.0
"""Requests of files: recorded messages, and records of decisions."""

import json
from dataclasses import replace

import pytest

from novasched.conf.settings import Settings
from novasched.observe.records.from_decision import summary_of
from novasched.observe.records.record import Record
from novasched.observe.records.store import UnreadableRecords
from novasched.scheduler.model.flavor import Image
from novasched.tools.simulate import sources
from novasched.tools.simulate.sources import Unusable
from tests.lab.builders import a_flavor, a_group, a_host, a_request
from tests.lab.ports import Decided, keep
from tests.lab.wire import CALLS

SETTINGS = Settings()
LINE = json.dumps({'request': CALLS['boot']})


@pytest.fixture
def recorded(tmp_path):
    """Three lines, of which the last is cut in the middle."""
    path = tmp_path / 'requests'
    path.write_text(f'{LINE}\n\n{LINE[: len(LINE) // 2]}\n')
    return path


@pytest.fixture
def decisions(tmp_path):
    """A file with decisions on servers of one flavor, in a group and without."""
    decided = Decided([a_host(ram=700)], settings=Settings(enabled_filters=('RamFilter',)))
    flavor = a_flavor(name='m1', memory_mb=600)
    requests = [
        a_request(instance_uuids=(name,), flavor=flavor, group=group)
        for name, group in (('one', None), ('two', None), ('three', a_group('affinity')))
    ]
    keep(tmp_path / 'decisions', decided, requests)
    return tmp_path / 'decisions'


def test_recorded_messages(recorded):
    """What is cut is told of; the rest is there."""
    found = sources.entries(str(recorded), SETTINGS)
    assert len(found.requests) == 1
    assert found.unread == ['line 3: no pair of request and reply (JSONDecodeError)']


@pytest.mark.parametrize(
    ('number', 'why'),
    [(':3', 'line 3: no pair'), (':2', 'no request in line 2'), (':9', 'no request in line 9')],
)
def test_a_line(recorded, number, why):
    """By its number, or else the first; what is not there is named."""
    assert sources.numbered(f'{recorded}:1') == sources.numbered(str(recorded))
    with pytest.raises(Unusable, match=why):
        sources.numbered(f'{recorded}{number}')


def test_decisions(decisions):
    """Those that are kept in full are repeated; the others are counted. A file that is cut cannot be
    read."""
    found = sources.entries(str(decisions), SETTINGS)
    assert [each.request.instance_uuids for each in found.requests] == [('one',), ('two',)]
    assert [each.hosts for each in found.requests] == [('host1',), ()]
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


@pytest.mark.parametrize(
    ('content', 'why'),
    [
        (None, 'No such file'),
        (b'', 'it is empty'),
        (b'\xff\xfe', 'no text'),
        (b'{}\n', 'line 1: no pair of request and reply'),
    ],
)
def test_nothing_to_use(tmp_path, content, why):
    """Why, in one line."""
    if content is not None:
        (tmp_path / 'file').write_bytes(content)
    with pytest.raises(Unusable, match=why):
        sources.entries(str(tmp_path / 'file'), SETTINGS)


REQUEST = a_request(
    flavor=a_flavor(name='m1', id=7, vcpus=4, memory_mb=8192, root_gb=9, ephemeral_gb=3, swap=5, extra_specs={'hw:numa_nodes': '1'}),
    image={'hw_architecture': 'x86_64'}, hints={'query': ['["=", 1]']}, availability_zone='z',
    ignore_hosts=('a',), count=2,
)  # fmt: skip


def kept(request, key=None):
    return Record('id', 0.0, 1, None, None, summary_of(request, key))


@pytest.mark.parametrize('volume', [False, True])
def test_what_is_kept_is_enough(volume):
    """The request as it was, with the cells that the flavor asks for."""
    image = Image('an image', disk_format='qcow2', properties={'hw_architecture': 'x86_64'})
    request = replace(REQUEST, image=image, is_bfv=volume)
    found = sources.rebuilt(kept(request), SETTINGS)
    assert len(found.numa_topology.cells) == 1
    assert replace(found, numa_topology=None) == request


@pytest.mark.parametrize(
    ('record', 'routed', 'why'),
    [
        (replace(kept(REQUEST), asked=replace(kept(REQUEST).asked, lacks=None)), False, 'release'),
        (kept(REQUEST, key=b'key'), False, 'not kept: project_id'),
        (kept(replace(REQUEST, requested_networks=('net',))), True, 'not kept: requested_networks'),
        (kept(replace(REQUEST, requested_networks=('net',))), False, None),
    ],
)
def test_what_is_not_enough(record, routed, why):
    """It is named, unless nothing depends on it."""
    settings = replace(SETTINGS, query_placement_for_routed_network_aggregates=routed)
    found = sources.rebuilt(record, settings)
    assert (why in found) if why else not isinstance(found, str)
