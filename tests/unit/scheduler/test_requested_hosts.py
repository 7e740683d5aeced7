# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.scheduler.model.request import Destination
from novasched.scheduler.requested_hosts import hosts_after_each_field
from tests.lab.builders import a_host, a_request

HOSTS = [
    a_host('a'),
    a_host('B'),
    a_host('c', nodename='c1'),
    a_host('c', nodename='c2'),
]
ALL = ['a', 'B', 'c1', 'c2']


NO_HOST = "No hosts matched due to not matching 'force_hosts' value of"
NO_NODE = "No nodes matched due to not matching 'force_nodes' value of"
NOWHERE = 'No hosts matched due to not matching requested destination (C, None)'


def to(**fields):
    """Return the fields of a request with a destination."""
    return {'requested_destination': Destination(**fields)}


@pytest.mark.parametrize(
    ('fields', 'left', 'line'),
    [
        ({}, ALL, None),
        (
            {'ignore_hosts': ('A', 'x')},
            ['B', 'c1', 'c2'],
            'Host filter ignoring hosts: A',
        ),
        (
            {'ignore_hosts': ('a', 'b', 'c')},
            [],
            'Host filter ignoring hosts: a, b, c, c',
        ),
        ({'force_hosts': ('b',)}, ['B'], 'Host filter forcing available hosts to B'),
        ({'force_hosts': ('x',)}, [], f"{NO_HOST} 'x'"),
        ({'force_nodes': ('c2',)}, ['c2'], 'Host filter forcing available nodes to c2'),
        ({'force_nodes': ('C2',)}, [], f"{NO_NODE} 'C2'"),
        (
            {'force_hosts': ('c',), 'force_nodes': ('c1',)},
            ['c1'],
            'Host filter forcing available nodes to c1',
        ),
        ({'force_hosts': ('a',), 'ignore_hosts': ('a',)}, [], f"{NO_HOST} 'a'"),
        (to(host='c'), ['c1', 'c2'], 'Host filter only checking host c and node None'),
        (
            to(host='c', node='c2'),
            ['c2'],
            'Host filter only checking host c and node c2',
        ),
        (to(host='C'), [], NOWHERE),
        (to(cell_uuid='x'), ALL, None),
    ],
)
def test_hosts_are_restricted_to_the_hosts_of_the_request(fields, left, line, caplog):
    """The hosts are restricted to the hosts of the request, with the log lines of
    nova."""
    caplog.set_level('INFO')
    hosts = HOSTS
    for _, remaining in hosts_after_each_field(HOSTS, a_request(**fields)):
        hosts = remaining

    assert [host.nodename for host in hosts] == left
    if line is None:
        assert caplog.messages == []
    else:
        assert caplog.messages[-1] == line
