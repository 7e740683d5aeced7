# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.filters.shared import (
    AggregatesFilter,
    KeyedFilter,
    attributes,
    equivalence_classes,
    judge,
)
from tests.lab.builders import a_group, a_host, a_request

ONE = (('x86_64', 'kvm'),)
COPY = tuple([('x86_64', 'kvm')])  # noqa: C409  (a second object)


def reasons(plugin, hosts, request=None):
    return judge(plugin, hosts, request or a_request(), None).reasons


@pytest.mark.parametrize(
    ('columns', 'kinds'),
    [
        ([['a', None, 'a']], 2),
        ([['some text', ' '.join(['some', 'text'])]], 1),
        ([[1, 1.0, True]], 3),
        ([[ONE, COPY]], 1),
        ([[ONE, (), COPY, None]], 3),
        ([[{}, {}]], 2),
        ([['a', 'a', 'b', 'b'], [1, 2, 1, 1]], 3),
        ([[], []], 0),
        ([[]], 0),
    ],
)
def test_which_hosts_are_alike(columns, kinds):
    """Hosts are alike that have equal values of one type in every column. A value that
    cannot be hashed is like itself alone."""
    classes = equivalence_classes(columns)
    assert len(classes) == len(columns[0])
    assert len(set(classes)) == kinds


class Counting(AggregatesFilter):
    """Rejects the hosts of an aggregate; counts those that it is asked about."""

    asked = 0

    def reject(self, host, request):
        self.asked += 1
        if host.metadata('closed'):
            return 'closed'
        return None


def test_hosts_in_equal_aggregates_share_a_verdict(unchecked_scopes):
    """It is found once, and stands for each of them in its place."""
    closed, open_, also = [
        a_host(name, metadata=row)
        for name, row in [
            ('a', {'closed': 'yes'}),
            ('b', {'x': 'y'}),
            ('c', {'closed': 'yes'}),
        ]
    ]
    plugin = Counting(Settings())
    verdicts = reasons(plugin, [open_, closed, open_, also, a_host()])
    assert verdicts == [None, 'closed', None, 'closed', None]
    assert plugin.asked == 3


class AboutTheInstance(Filter):
    """Lets one instance in, and claims to look at the host alone."""

    scope = Scope.HOST

    def reject(self, host, request):
        if request.instance_uuid == a_request().instance_uuid:
            return None
        return 'another instance'


class AboutTheOthers(Filter):
    """Keeps away from members of the group, and claims that these do not matter."""

    scope = Scope.REQUEST

    def reject(self, host, request):
        group = request.instance_group
        if group and host.host in group.hosts:
            return 'taken'
        return None


class Moody(Filter):
    """Changes its mind."""

    scope = Scope.HOST
    asked = 0

    def reject(self, host, request):
        self.asked += 1
        if self.asked % 2:
            return 'not now'
        return None


class WrongKey(KeyedFilter):
    """Looks at more than its key says."""

    scope = Scope.HOST

    def key(self, request):
        return attributes('cell_uuid')

    def reject(self, host, request):
        if host.host == 'b':
            return 'is b'
        return None


@pytest.mark.parametrize('kind', [AboutTheInstance, AboutTheOthers, Moody, WrongKey])
def test_a_filter_that_lies_about_its_scope(kind):
    """It is found out wherever tests run it, also for one instance; one whose scope
    allows for anything is believed."""
    hosts = [a_host('a'), a_host('b')]
    request = a_request(group=a_group('affinity'))
    with pytest.raises(AssertionError, match='scope'):
        reasons(kind(Settings()), hosts, request)
    honest = type('Honest', (kind,), {'scope': Scope.INSTANCE})
    assert len(reasons(honest(Settings()), hosts, request)) == 2
