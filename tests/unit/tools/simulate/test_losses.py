# SPDX-License-Identifier: Apache-2.0
"""Lost hosts: the requests of their servers, and the reports."""

import io
import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.model.request import Destination, Request
from novasched.tools.simulate import evacuations, losses
from novasched.tools.simulate.evacuations import EvacuationReader, Evacuee
from novasched.tools.simulate.losses import EvacueeResult, Loss
from novasched.tools.simulate.sources import Unusable
from tests.lab.builders import a_flavor, a_host, a_request
from tests.lab.wire import a_spec, primitive


class Tables:
    """A database with given rows."""

    def __init__(self, **tables):
        self.tables = tables

    def rows(self, name, columns, where):
        rows = []
        for row in self.tables[name]:
            rows.append(SimpleNamespace(**{**dict.fromkeys(columns), **row}))
        return rows


def read(spec, settings=None, groups=(), group_members=()):
    """The request for the evacuation of a server, with a saved RequestSpec."""
    specs = []
    if spec is not None:
        specs.append({'instance_uuid': 'a', 'spec': spec})
    api = Tables(
        request_specs=specs,
        instance_groups=groups,
        instance_group_member=group_members,
    )
    row = {
        'uuid': 'a',
        'host': 'host1',
        'project_id': 'p',
        'user_id': 'u',
        'vm_state': 'stopped',
    }
    hidden = {**row, 'uuid': 'b', 'hidden': True}
    cell = SimpleNamespace(uuid='cell', database=Tables(instances=[row, hidden]))
    (found,) = EvacuationReader(api, [cell], settings or Settings()).on(['host1'])

    assert (found.uuid, found.host, found.state) == ('a', 'host1', 'stopped')

    return found.request


def test_an_evacuation_request_is_rebuilt_from_the_saved_request():
    """nova's saved request for the single server, in its cell, without forced hosts and
    retries."""
    spec = a_spec(
        force_hosts=['host1'], num_instances=3, availability_zone='z', project_id='q'
    )
    request = read(json.dumps(spec))
    assert isinstance(request, Request)
    assert request.instance_uuids == ('a',)
    assert (request.force_hosts, request.availability_zone) == ((), 'z')
    assert (request.project_id, request.user_id) == ('q', 'u')
    assert request.requested_destination == Destination(cell_uuid='cell')
    assert request.request_id is None


def test_devices_of_an_evacuation_become_request_groups():
    """With [filter_scheduler] pci_in_placement, devices are request groups."""
    device = primitive(
        'InstancePCIRequest',
        '1.3',
        count=1,
        alias_name='gpu',
        request_id='r',
        spec=[{'vendor_id': '1', 'product_id': '2'}],
    )
    spec = json.dumps(
        a_spec(pci_requests=primitive('InstancePCIRequests', '1.1', requests=[device]))
    )
    assert read(spec).requested_resources == ()

    (group,) = read(spec, Settings(pci_in_placement=True)).requested_resources
    assert group.resources == {'CUSTOM_PCI_1_2': 1}


def test_an_evacuation_request_has_the_present_group_members():
    """A server group has its present members. A deleted group is dropped."""
    group = primitive(
        'InstanceGroup', '1.11', uuid='g', policy='affinity', members=None, hosts=None
    )
    spec = json.dumps(
        a_spec(instance_group=group, scheduler_hints={'group': ['g'], 'x': ['y']})
    )
    rows = [{'id': 5, 'uuid': 'g'}]
    them = [{'group_id': 5, 'instance_uuid': uuid} for uuid in 'ac']
    found = read(spec, groups=rows, group_members=them)

    assert found.instance_group.members == {'a', 'c'}

    found = read(spec)
    assert found.instance_group is None
    assert found.scheduler_hints == {'x': ('y',)}


CYBORG = {
    **a_spec()['nova_object.data']['flavor']['nova_object.data'],
    'extra_specs': {'accel:device_profile': 'p'},
}


@pytest.mark.parametrize(
    ('spec', 'why'),
    [
        (None, 'nova has no request of it'),
        ('{"', 'cannot be read'),
        (json.dumps(primitive('Flavor', '1.2')), 'is no RequestSpec'),
        (json.dumps(primitive('RequestSpec', '1.15')), 'the request has no flavor'),
        (
            json.dumps(a_spec(flavor=primitive('Flavor', '1.2', **CYBORG))),
            'only Cyborg knows',
        ),
    ],
)
def test_a_missing_or_unusable_saved_request_has_a_reason(spec, why):
    assert why in read(spec)


HOSTS = [
    a_host('a', metadata={'availability_zone': 'west'}),
    a_host('b', metadata=({'availability_zone': 'west'}, {})),
    a_host('c'),
]


@pytest.mark.parametrize(
    ('wanted', 'names'),
    [
        (['host=a'], {'a'}),
        (['host=a', 'host=c'], {'a', 'c'}),
        (['zone=west'], {'a', 'b'}),
        (['zone=nova'], {'c'}),
        (['aggregate=aggregate2'], {'b'}),
        (['host=d'], None),
        (['zone=a'], None),
    ],
)
def test_lost_hosts_are_named_by_host_zone_or_aggregate(wanted, names):
    if names is None:
        with pytest.raises(Unusable, match='has hosts'):
            losses.named(wanted, HOSTS, 'nova')
    else:
        assert losses.named(wanted, HOSTS, 'nova') == names


def an_outcome(name, host=None, why='', decided=True, state='active'):
    request = a_request(flavor=a_flavor(name='m1')) if decided else why
    return EvacueeResult(Evacuee(name, 'a', state, request), host, why, None, decided)


LOSS = Loss(
    'host=a',
    {'a'},
    [
        an_outcome('one', 'b'),
        an_outcome('two', 'b', state='paused'),
        an_outcome('three', None, 'no room'),
        an_outcome('four', None, 'nova has no request', decided=False),
    ],
)
TEXT = """\
Without host=a: 2 of 4 servers find a place, 1 does not.

+--------------+--------+---------+---------+
| no place for | flavor | of host | why not |
+--------------+--------+---------+---------+
| three        |     m1 |       a | no room |
+--------------+--------+---------+---------+

+----------+---------+---------------+
| new host | servers | memory before |
+----------+---------+---------------+
| b        |      +2 |            0% |
+----------+---------+---------------+
Not known: 1: nova has no request
1 servers are paused: nova evacuates none in that state."""


def test_reports_of_a_loss_show_the_move_of_each_instance():
    """The table and the JSON report."""
    assert losses.lost_as_text(LOSS, HOSTS) == TEXT

    said = json.loads(losses.lost_as_json(LOSS))
    assert (said['servers'], said['placed'], said['unplaced'], said['unknown']) == (
        4,
        2,
        1,
        1,
    )
    assert [(move['server'], move['to'], move['known']) for move in said['moves']] == [
        ('one', 'b', True),
        ('two', 'b', True),
        ('three', None, True),
        ('four', None, False),
    ]


def test_reports_of_many_losses_have_the_worst_loss_first():
    """The reports have the worst loss first, and count losses without consequences."""
    found = [LOSS, replace(LOSS, name='host=b', outcomes=LOSS.outcomes[:2])]
    text = losses.worst_as_text('host', found)
    assert text.splitlines()[0].startswith(
        'Of 2 hosts, each lost alone, 1 leaves no server without'
    )
    assert text.endswith('Not known: 1 servers: nova has no request')
    said = json.loads(losses.worst_as_json('host', found))
    assert (said['lost'], said['holds']) == (2, 1)
    assert said['losses'][0]['refusals'] == {'no room': 1}


@pytest.mark.parametrize('is_terminal', [True, False])
def test_only_a_terminal_shows_progress(monkeypatch, is_terminal):
    """A terminal shows a bar; a file gets no output."""
    file = io.StringIO()
    file.isatty = lambda: is_terminal
    monkeypatch.setattr(sys, 'stderr', file)
    assert [*evacuations.progress('abcd', 'lost')] == [*'abcd']
    assert ('3 of 4 lost' in file.getvalue()) == is_terminal
    assert bool(file.getvalue()) == is_terminal
