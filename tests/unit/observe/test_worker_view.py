# SPDX-License-Identifier: Apache-2.0
"""The state of a worker, as health and metrics see it."""

import math
from types import SimpleNamespace

import pytest

from novasched.concurrency.circuit_breaker import Trouble
from novasched.observe import metrics
from novasched.observe.health.state import CellReport
from novasched.observe.health.vitals import MAX_WHY_CHARACTERS, Work
from novasched.observe.worker_view import WorkerParts
from tests.lab.builders import a_host

LONG = 'x' * 1000
TROUBLE = Trouble(1.0, 2.0, LONG)
SHORT = Trouble(1.0, 2.0, 'x' * MAX_WHY_CHARACTERS)
HOSTS = {'a': a_host('a'), 'b': a_host('b')}


def a_database(is_open=False, trouble=None):
    breaker = SimpleNamespace(trouble=trouble)
    return SimpleNamespace(circuit_open=is_open, breaker=breaker)


def a_cell(uuid, name, database):
    return SimpleNamespace(
        uuid=uuid,
        name=name,
        identity=f'{uuid}({name})',
        disabled=False,
        database=database,
    )


def a_worker(read_at=5.0, peers=None, notifier=None):
    """The parts of a worker: Placement and cell2 do not answer."""
    cells = [
        a_cell('c1', 'cell1', a_database()),
        a_cell('c2', 'cell2', a_database(True, TROUBLE)),
    ]
    hosts = SimpleNamespace(
        cells=SimpleNamespace(all=lambda: cells, api=a_database()),
        cells_snapshot=SimpleNamespace(
            cells={'c1': SimpleNamespace(hosts=HOSTS)},
            host_snapshot=SimpleNamespace(hosts=HOSTS, read_at=read_at),
        ),
        pending_claims=SimpleNamespace(count=lambda: 3, given_back=4, peers=peers),
        refreshed=6,
    )
    placement = SimpleNamespace(
        circuit_open=True, trouble=TROUBLE, remembered_age=7.0, pending_deletions=8
    )
    server = SimpleNamespace(
        connected_at=1.0, moved=2.0, done=9, in_progress=1, threads=64, waiting=2
    )
    records = SimpleNamespace(dropped=10)
    return WorkerParts(hosts, placement, a_database(), notifier, records, server)


def test_the_report_for_health_shortens_error_texts():
    """The report has the error texts cut, since a report is one datagram."""
    peers = SimpleNamespace(position=(1, 3), is_sharing=True, missed=0, late=0)
    report = Work(a_worker(peers=peers).view, shares=True, max_request_s=60.0)()
    assert report.troubles == {'placement': SHORT}
    assert report.breakers == ['placement', 'cell c2(cell2)']
    assert report.cells == [
        CellReport('c1', 'cell1', 2),
        CellReport('c2', 'cell2', None, trouble=SHORT),
    ]
    assert report.hosts == {'up': 2}
    assert (report.read_at, report.pending_claims, report.remembered_s) == (5.0, 3, 7.0)
    assert (report.peers, report.shares) == (2, True)


@pytest.mark.parametrize(
    ('wanted', 'peers', 'shares'),
    [
        (False, None, True),
        (True, None, False),
        (
            True,
            SimpleNamespace(position=(0, 1), is_sharing=False, missed=0, late=0),
            False,
        ),
        (
            True,
            SimpleNamespace(position=(0, 1), is_sharing=True, missed=0, late=0),
            True,
        ),
    ],
)
def test_the_report_tells_if_pending_claims_are_shared_as_wanted(wanted, peers, shares):
    """Health warns where pending claims should be shared and are not."""
    assert Work(a_worker(peers=peers).view, wanted, None)().shares == shares


def test_hosts_are_unknown_before_the_first_reading():
    """Neither health nor metrics know hosts before the databases have been read."""
    view = a_worker(read_at=-math.inf).view()
    assert view.read_at is None
    assert Work(lambda: view, False, None)().hosts is None
    assert metrics._snapshot_age(view) == {}


def test_every_target_has_a_sample_of_an_open_or_closed_circuit():
    """Each target has a sample, whether its circuit is open or not."""
    assert metrics._open_breakers(a_worker().view()) == {
        ('placement', ''): 1,
        ('database', ''): 0,
        ('api_database', ''): 0,
        ('cell', 'c1'): 0,
        ('cell', 'c2'): 1,
    }


def test_dropped_notifications_are_counted():
    assert a_worker().view().notifications_dropped == 0
    notifier = SimpleNamespace(dropped=5)
    assert a_worker(notifier=notifier).view().notifications_dropped == 5
