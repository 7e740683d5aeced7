# SPDX-License-Identifier: Apache-2.0
import numpy as np
import pytest

from novasched.scheduler.model.host_list import HostList, HostRows
from tests.lab.builders import a_host, a_uuid

A = a_host('a')
B = a_host('b')
C = a_host('c')
OTHER_A = a_host('a', ram=1)
OTHER_B = a_host('b', ram=1)


def in_order(*rows):
    """A list over three rows of hosts."""
    return HostList(HostList.of([A, B, C]).base, np.array(rows, np.intp))


@pytest.mark.parametrize('rows', [(), (1,), (2, 0), (2, 1, 0)])
def test_a_list_is_a_sequence_of_hosts(rows):
    hosts = in_order(*rows)
    expected = [[A, B, C][row] for row in rows]
    assert [*hosts] == expected
    assert len(hosts) == len(rows)
    assert str(hosts) == str(expected)
    assert [hosts[i] for i in range(len(rows))] == expected
    assert hosts[1:] == expected[1:]
    assert [*reversed(hosts)] == expected[::-1]
    with pytest.raises(IndexError):
        hosts[len(rows)]


@pytest.mark.parametrize(
    ('rows', 'others', 'expected'),
    [
        ((0, 1, 2), {}, [A, B, C]),
        ((2, 0), {A.uuid: OTHER_A}, [C, OTHER_A]),
        ((2, 0), {A.uuid: OTHER_A, B.uuid: OTHER_B}, [C, OTHER_A]),
        ((2, 0), {a_uuid('elsewhere'): OTHER_A}, [C, A]),
        ((), {A.uuid: OTHER_A}, []),
    ],
)
def test_other_hosts_take_the_places_of_the_same_compute_nodes(rows, others, expected):
    before = in_order(*rows)
    hosts = [*before]
    assert [*before.with_hosts(others)] == expected
    assert [*before] == hosts


@pytest.mark.parametrize(
    ('rows', 'uuids', 'left', 'number'),
    [
        ((2, 1, 0), [], [C, B, A], 0),
        ((2, 1, 0), [B.uuid], [C, A], 1),
        ((2, 0), [B.uuid], [C, A], 0),
        ((2, 1, 0), [A.uuid, C.uuid, a_uuid('elsewhere')], [B], 2),
    ],
)
def test_hosts_are_left_out_and_counted_by_uuid(rows, uuids, left, number):
    hosts = in_order(*rows)
    assert [*hosts.without(uuids)] == left
    assert hosts.number_among(uuids) == number


def test_lists_of_the_same_hosts_share_the_rows():
    hosts = HostList.of([A, B, C])
    assert HostList.of(hosts) is hosts
    for derived in (
        hosts.where(np.array([True, False, True])),
        hosts.without([B.uuid]),
        hosts.with_hosts({}),
    ):
        assert derived.base is hosts.base


def test_a_row_without_a_host_gives_none():
    rows = HostRows.of({A.uuid: 0, B.uuid: 1}, {A.uuid: A, C.uuid: C})
    assert rows.get(A.uuid) is A
    assert rows.get(B.uuid) is None
    assert rows.get(C.uuid) is None
    assert rows.with_hosts({B.uuid: B, A.uuid: None}).get(B.uuid) is B
