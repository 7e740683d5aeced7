# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.model.request import Destination, Origin, Retry
from novasched.records import summary
from novasched.records.reasons import told
from novasched.records.record import Asked
from tests.builders import a_flavor, a_group, a_request, a_uuid


@pytest.mark.parametrize(
    ('asked', 'kept'),
    [
        ({}, {}),
        ({'count': 2}, {'count': 2, 'servers': (a_uuid('server0'), a_uuid('server1'))}),
        ({'availability_zone': 'west'}, {'zone': 'west'}),
        ({'hints': {'same_host': ['a', 'b']}}, {'hints': {'same_host': 'a, b'}, 'lacks': ('scheduler_hints',)}),
        ({'hints': {'query': ['["=", 1]']}}, {'hints': {'query': '["=", 1]'}}),
        ({'extra_specs': {'hw:x': '1'}}, {'extra_specs': {'hw:x': '1'}}),
        ({'extra_specs': {'hw:x': 'y' * 9999}}, {'extra_specs': {'hw:x': told('y' * 9999)}, 'lacks': ('extra_specs',)}),
        ({'image': {'hw_x': 'y', 'hw_n': 2}}, {'image_properties': {'hw_x': 'y', 'hw_n': 2}}),
        ({'image': {'traits_required': ['X']}}, {'lacks': ('image',)}),
        ({'group': a_group('affinity')}, {'policy': 'affinity', 'lacks': ('instance_group',)}),
        ({'requested_destination': Destination(host='a')}, {'destination': 'a', 'lacks': ('requested_destination',)}),
        ({'requested_destination': Destination(host='a', node='n')}, {'destination': 'a n', 'lacks': ('requested_destination',)}),
        ({'requested_destination': Destination(cell_uuid='c')}, {'lacks': ('requested_destination',)}),
        ({'retry': Retry()}, {}),
        ({'retry': Retry(2, (('a', 'a'),))}, {'lacks': ('retry',)}),
        ({'ignore_hosts': ('a',), 'force_hosts': ('b',)}, {'ignore_hosts': ('a',), 'force_hosts': ('b',)}),
        ({'flavor': a_flavor(name='m1', vcpus=4, memory_mb=8, root_gb=5, ephemeral_gb=2, swap=9)}, {'flavor': 'm1', 'vcpus': 4, 'memory_mb': 8, 'disk_gb': 7, 'root_gb': 5, 'swap_mb': 9}),
        ({'is_bfv': True}, {'disk_gb': 0, 'is_bfv': True}),
        ({'origin': Origin('all that came', 'its context')}, {}),
    ],
)  # fmt: skip
def test_what_is_kept(asked, kept):
    """The request in short, and the names of what is not all there; nothing of the message
    that it came in."""
    plain = {
        'servers': (a_uuid('server0'),), 'project': 'project', 'user': 'user',
        'vcpus': 1, 'memory_mb': 512, 'disk_gb': 1, 'root_gb': 1, 'lacks': (),
    }  # fmt: skip
    assert summary.of(a_request(**asked), hashed=False) == Asked(**plain | kept)


def test_ids_that_are_not_shown():
    """The same id gives the same hash, from which it cannot be read."""
    one, two = (summary.of(a_request(), hashed=True) for _ in range(2))
    assert one == two
    assert one.project not in (None, 'project', one.user)
