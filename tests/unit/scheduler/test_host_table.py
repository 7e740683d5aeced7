# SPDX-License-Identifier: Apache-2.0
from dataclasses import replace

import pytest

from novasched.scheduler import host_table
from novasched.scheduler.host_table import HostTable
from novasched.scheduler.model.host_list import HostList
from tests.lab.builders import a_host, numbered_hosts

A = a_host('a')
B = a_host('b')
C = a_host('c')
OTHER_A = replace(A)


def ask(table, hosts, key='x', lasting=True):
    """The names of the hosts without a value in a column. The values are filled in."""
    rows = table.rows(HostList.of(hosts))
    column, stale = table.column(key, rows, float, lasting)
    column.values[stale] = 1
    column.fresh[stale] = True
    assert column.values[rows].tolist() == [1] * len(hosts)
    return ''.join(table.hosts[row].host for row in stale)


@pytest.mark.parametrize(
    ('lists', 'asked'),
    [
        ([[A, B, C], [A, B, C]], ['abc', '']),
        ([[A, B], [B, A, C], [C, A]], ['ab', 'c', '']),
        ([[A, B], [OTHER_A, B], [OTHER_A, B], [A, B]], ['ab', 'a', '', 'a']),
        ([[A, B, C], [B], [OTHER_A, C], [A, B, C]], ['abc', '', 'a', 'a']),
        ([[], [A]], ['', 'a']),
    ],
)
def test_a_value_is_kept_until_the_host_object_is_replaced(lists, asked):
    table = HostTable()
    assert [ask(table, hosts) for hosts in lists] == asked


def test_columns_of_a_request_are_empty_for_the_next_request():
    """The columns of a request are empty for the next request, even for other hosts.
    Lasting columns keep their values."""
    table = HostTable()
    for hosts, of_one, of_all in [
        ([A, B], 'ab', 'ab'),
        ([B, C], 'bc', 'c'),
        ([A, B], 'ab', ''),
    ]:
        table.request = object()
        assert ask(table, hosts, 'one', lasting=False) == of_one
        assert ask(table, hosts, 'one', lasting=False) == ''
        assert ask(table, hosts, 'all') == of_all


def test_the_columns_that_were_asked_for_last_are_kept(monkeypatch):
    monkeypatch.setattr(host_table, 'MAX_COLUMNS', 2)
    table = HostTable()
    assert [ask(table, [A], key) for key in 'xyxzxy'] == ['a', 'a', '', 'a', '', 'a']


def test_rows_of_deleted_hosts_are_removed(monkeypatch):
    """The rows of deleted hosts are removed after a while."""
    monkeypatch.setattr(host_table, 'SPARE_ROWS', 3)
    table = HostTable()
    sizes = []
    for number in range(20):
        ask(table, numbered_hosts(2, f'{number}.'))
        sizes.append(len(table.hosts))
    assert sizes[:5] == [2, 4, 6, 2, 4]
    assert max(sizes) == 6
