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
def test_hosts_with_equal_values_are_equivalent(columns, kinds):
    """Hosts with equal values of the same type in every column are equivalent. A value
    that cannot be hashed equals no other value."""
    classes = equivalence_classes(columns)
    assert len(classes) == len(columns[0])
    assert len(set(classes)) == kinds


class Counting(AggregatesFilter):
    """Rejects the hosts of an aggregate, and counts the calls."""

    asked = 0

    def reject(self, host, request):
        self.asked += 1
        if host.metadata('closed'):
            return 'closed'
        return None


def test_hosts_in_equal_aggregates_share_a_verdict(unchecked_scopes):
    """The filter is called once for hosts in equal aggregates, and all such hosts get
    the verdict."""
    closed = a_host('a', metadata={'closed': 'yes'})
    open_ = a_host('b', metadata={'x': 'y'})
    closed_too = a_host('c', metadata={'closed': 'yes'})
    plugin = Counting(Settings())
    verdicts = reasons(plugin, [open_, closed, open_, closed_too, a_host()])
    assert verdicts == [None, 'closed', None, 'closed', None]
    assert plugin.asked == 3


class AboutTheInstance(Filter):
    """Accepts one instance only, with a scope that excludes the instance."""

    scope = Scope.HOST

    def reject(self, host, request):
        if request.instance_uuid == a_request().instance_uuid:
            return None
        return 'another instance'


class AboutGroupMembers(Filter):
    """Rejects the hosts of group members, with a scope that excludes members."""

    scope = Scope.REQUEST

    def reject(self, host, request):
        group = request.instance_group
        if group and host.host in group.hosts:
            return 'taken'
        return None


class Alternating(Filter):
    """Rejects every second call."""

    scope = Scope.HOST
    asked = 0

    def reject(self, host, request):
        self.asked += 1
        if self.asked % 2:
            return 'not now'
        return None


class WrongKey(KeyedFilter):
    """Reads more of a host than the key."""

    scope = Scope.HOST

    def key(self, request):
        return attributes('cell_uuid')

    def reject(self, host, request):
        if host.host == 'b':
            return 'is b'
        return None


@pytest.mark.parametrize(
    'kind', [AboutTheInstance, AboutGroupMembers, Alternating, WrongKey]
)
def test_a_filter_with_a_wrong_scope_is_revealed(kind):
    """CHECK_SCOPES reveals a filter that depends on more than its scope, even for a
    request for one instance."""
    hosts = [a_host('a'), a_host('b')]
    request = a_request(group=a_group('affinity'))
    with pytest.raises(AssertionError, match='scope'):
        reasons(kind(Settings()), hosts, request)
    honest = type('Honest', (kind,), {'scope': Scope.INSTANCE})
    assert len(reasons(honest(Settings()), hosts, request)) == 2
