# SPDX-License-Identifier: Apache-2.0
import hashlib

import pytest

from novasched.conf import redaction
from novasched.conf.redaction import one_line
from novasched.observe.records.from_decision import OTHERS, grouped, summary_of
from novasched.observe.records.record import RequestParts, RequestSummary
from novasched.scheduler.model.request import Destination, Origin, Retry
from tests.lab.builders import a_flavor, a_group, a_request, a_uuid


def beside(**parts):
    """What is not in the summary, and is kept beside it."""
    return {'lacks': tuple(parts), 'parts': RequestParts(**parts)}


@pytest.mark.parametrize(
    ('asked', 'kept'),
    [
        ({}, {}),
        ({'count': 2}, {'count': 2, 'servers': (a_uuid('server0'), a_uuid('server1'))}),
        ({'availability_zone': 'west'}, {'zone': 'west'}),
        (
            {'hints': {'same_host': ['a', 'b']}},
            {
                'hints': {'same_host': 'a, b'},
                **beside(scheduler_hints={'same_host': ('a', 'b')}),
            },
        ),
        ({'hints': {'query': ['["=", 1]']}}, {'hints': {'query': '["=", 1]'}}),
        ({'extra_specs': {'hw:x': '1'}}, {'extra_specs': {'hw:x': '1'}}),
        (
            {'extra_specs': {'hw:x': 'y' * 9999}},
            {'extra_specs': {'hw:x': one_line('y' * 9999)}, 'lacks': ('extra_specs',)},
        ),
        (
            {'image': {'hw_x': 'y', 'hw_n': 2}},
            {'image_properties': {'hw_x': 'y', 'hw_n': 2}},
        ),
        (
            {'extra_specs': {'hw:x': 'y' * 999}},
            {
                'extra_specs': {'hw:x': one_line('y' * 999)},
                **beside(extra_specs={'hw:x': 'y' * 999}),
            },
        ),
        (
            {'image': {'traits_required': ['X']}},
            beside(image={'traits_required': ['X']}),
        ),
        (
            {'group': a_group('affinity')},
            {'policy': 'affinity', **beside(instance_group=a_group('affinity'))},
        ),
        (
            {'requested_destination': Destination(host='a')},
            {'destination': 'a', **beside(requested_destination=Destination(host='a'))},
        ),
        (
            {'requested_destination': Destination(host='a', node='n')},
            {
                'destination': 'a n',
                **beside(requested_destination=Destination(host='a', node='n')),
            },
        ),
        (
            {'requested_destination': Destination(cell_uuid='c')},
            {**beside(requested_destination=Destination(cell_uuid='c'))},
        ),
        ({'retry': Retry()}, {}),
        ({'retry': Retry(2, (('a', 'a'),))}, beside(retry=Retry(2, (('a', 'a'),)))),
        (
            {'ignore_hosts': ('a',), 'force_hosts': ('b',)},
            {'ignore_hosts': ('a',), 'force_hosts': ('b',)},
        ),
        (
            {
                'flavor': a_flavor(
                    name='m1', vcpus=4, memory_mb=8, root_gb=5, ephemeral_gb=2, swap=9
                )
            },
            {
                'flavor': 'm1',
                'vcpus': 4,
                'memory_mb': 8,
                'disk_gb': 7,
                'root_gb': 5,
                'swap_mb': 9,
            },
        ),
        ({'is_bfv': True}, {'disk_gb': 0, 'is_bfv': True}),
        ({'origin': Origin('all that came', 'its context')}, {}),
    ],
)
def test_what_is_kept(asked, kept):
    """The request in short, and the names of what is not all there; nothing of the
    message that it came in."""
    plain = {
        'servers': (a_uuid('server0'),), 'project': 'project', 'user': 'user',
        'vcpus': 1, 'memory_mb': 512, 'disk_gb': 1, 'root_gb': 1, 'lacks': (),
    }  # fmt: skip
    assert summary_of(a_request(**asked)) == RequestSummary(**plain | kept)


def test_ids_that_are_not_shown():
    """The same id gives the same hash under the same key. Without the key nobody can
    tell an id from its hash by trying all ids."""
    one, two, other = (
        summary_of(a_request(), key) for key in (b'key', b'key', b'another key')
    )
    assert one == two
    assert one.project not in (None, 'project', one.user, other.project)
    grouped = summary_of(a_request(group=a_group('affinity')), b'key')
    assert (grouped.lacks, grouped.parts) == (('project_id', 'instance_group'), None)
    assert one.project != hashlib.sha256(b'project').hexdigest()[: len(one.project)]


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
def test_grouped(reasons, causes):
    """Reasons that differ in numbers alone are one; what is part of a name is no
    number."""
    assert [(each.reason, each.hosts) for each in grouped(reasons)] == causes


RANDOM = 'kG7bQz2mXw9RtLp4'


def test_what_is_told(monkeypatch):
    """One line, not too long, and nothing that is secret."""
    monkeypatch.setattr(redaction.KNOWN, '__dict__', vars(redaction.Secrets([RANDOM])))
    assert redaction.one_line(f'a\n  b {RANDOM}') == 'a b ***'
    assert len(redaction.one_line('x' * 999)) == redaction.MAX_LINE_CHARACTERS
    secret = f'a\n{RANDOM}'
    assert redaction.one_line_each([secret, 'b', 'b']) == {secret: 'a ***', 'b': 'b'}
