# SPDX-License-Identifier: Apache-2.0
"""What operators see and do."""

from __future__ import annotations

from tests.lab.daemon import Daemon

from .small_cloud import COMPUTES, SmallCloud


def test_the_scheduler_is_up(cloud: SmallCloud, scheduler: Daemon) -> None:
    """The list of services shows the scheduler of this cloud up and enabled."""
    shown = cloud.api.services('nova-scheduler')[scheduler.host]
    assert (shown['state'], shown['status']) == ('up', 'enabled')


def test_both_schedulers_at_once(cloud: SmallCloud, other_scheduler: Daemon) -> None:
    """Servers run while both schedulers share the queue, and when one of them has stopped."""
    assert cloud.api.services('nova-scheduler')[other_scheduler.host]['state'] == 'up'
    assert {cloud.boot().host for _ in range(4)} <= set(COMPUTES)
    assert other_scheduler.stop() == 0
    assert {cloud.boot().host for _ in range(4)} <= set(COMPUTES)


def test_disabled_computes(cloud: SmallCloud) -> None:
    """Computes that are disabled get no new servers, and get them again when enabled."""
    with cloud.disabled('compute-1', 'compute-2', 'compute-3'):
        assert {server.host for server in cloud.boot_many(3)} == {'compute-4'}
    assert cloud.boot_many(1)[0].host in COMPUTES[:3]


def test_dead_compute(cloud: SmallCloud) -> None:
    """A compute that is forced down gets no new servers."""
    with cloud.dead('compute-2'):
        hosts = {server.host for server in cloud.boot_many(6)}
    assert hosts == set(COMPUTES) - {'compute-2'}


def test_no_compute_left(cloud: SmallCloud) -> None:
    """Without a compute that takes servers a server ends in an error."""
    with cloud.disabled(*COMPUTES):
        assert cloud.fault().startswith('No valid host was found.')


def test_delete(cloud: SmallCloud) -> None:
    """A server that is deleted holds nothing any more, and its neighbour what it held."""
    gone, stays = cloud.boot_many(2)
    cloud.api.delete(gone.uuid)
    cloud.check_allocations()
    assert set(cloud.allocations()) == {stays.uuid}
