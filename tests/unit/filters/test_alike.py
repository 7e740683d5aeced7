# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.filters.alike import AggregatesFilter, alike
from novasched.model.settings import Settings
from tests.builders import a_host, a_request

ONE, COPY = (('x86_64', 'kvm'),), tuple([('x86_64', 'kvm')])  # noqa: C409  (a second object)


@pytest.mark.parametrize(
    ('columns', 'kinds'),
    [
        ([['a', 'b', 'a']], 2),
        ([['a', None, 'a']], 2),
        ([['some text', ' '.join(['some', 'text'])]], 1),
        ([[10**9, 10**9 + 0, 7]], 2),
        ([[1, 1.0, True]], 3),
        ([[0.5, 0.5]], 1),
        ([[ONE, ONE]], 1),
        ([[ONE, COPY]], 2),
        ([[{}, {}]], 2),
        ([['a', 'a', 'b', 'b'], [1, 2, 1, 1]], 3),
        ([[], []], 0),
        ([[]], 0),
    ],
)
def test_which_hosts_are_alike(columns, kinds):
    """Texts and numbers of one type are told apart by value, all else by identity, and hosts
    by whatever column they differ in."""
    found = alike(columns)
    assert len(found) == len(columns[0])
    assert len(set(found)) == kinds


class Counting(AggregatesFilter):
    """Rejects the hosts of an aggregate; counts those that it is asked about."""

    asked = 0

    def reject(self, host, request):
        self.asked += 1
        return 'closed' if host.metadata('closed') else None


def test_hosts_in_the_same_aggregates_share_a_verdict():
    """It is found once, and stands for each of them in its place."""
    closed, open_ = a_host(metadata={'closed': 'yes'}), a_host(metadata={'x': 'y'})
    each = Counting(Settings())
    verdicts = each.reject_all([open_, closed, open_, closed, a_host()], a_request())
    assert verdicts == [None, 'closed', None, 'closed', None]
    assert each.asked == 3
