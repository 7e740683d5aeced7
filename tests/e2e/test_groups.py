# SPDX-License-Identifier: Apache-2.0
"""Server groups keep their servers together, or apart."""

from __future__ import annotations

from .small_cloud import COMPUTES, SmallCloud

NOT_ENOUGH = 'No valid host was found. There are not enough hosts available.'


def test_affinity(cloud: SmallCloud) -> None:
    """Servers of an affinity group share a host, one by one and several at once."""
    with cloud.group('affinity') as hint:
        servers = [cloud.boot(hint), cloud.boot(hint), *cloud.boot_many(2, hint)]
        assert len({server.host for server in servers}) == 1


def test_affinity_without_room(cloud: SmallCloud) -> None:
    """A group whose host takes no more servers gets none elsewhere."""
    with cloud.group('affinity') as hint:
        first = cloud.boot(hint)
        with cloud.disabled(str(first.host)):
            assert cloud.fault(hint).startswith('No valid host was found.')


def test_anti_affinity(cloud: SmallCloud) -> None:
    """Servers of an anti-affinity group have a host each; one more than there are hosts
    ends in an error."""
    with cloud.group('anti-affinity') as hint:
        servers = [cloud.boot(hint), *cloud.boot_many(2, hint), cloud.boot(hint)]
        assert {server.host for server in servers} == set(COMPUTES)
        assert cloud.fault(hint) == NOT_ENOUGH


def test_anti_affinity_of_too_many_at_once(cloud: SmallCloud) -> None:
    """More servers than hosts in one request get none at all."""
    with cloud.group('anti-affinity') as hint:
        cloud.ask(hint, min_count=5, max_count=5)
        servers = [cloud.api.settled(server.uuid, 'ERROR') for server in cloud.api.servers()]
        assert [(server.host, server.fault) for server in servers] == [(None, NOT_ENOUGH)] * 5


def test_soft_affinity(cloud: SmallCloud) -> None:
    """Servers of a soft-affinity group share a host while they can."""
    with cloud.group('soft-affinity') as hint:
        servers = [cloud.boot(hint), cloud.boot(hint), *cloud.boot_many(2, hint)]
        assert len({server.host for server in servers}) == 1
        with cloud.disabled(str(servers[0].host)):
            assert cloud.boot(hint).host != servers[0].host


def test_soft_anti_affinity(cloud: SmallCloud) -> None:
    """Servers of a soft-anti-affinity group have a host each while they can."""
    with cloud.group('soft-anti-affinity') as hint:
        servers = [cloud.boot(hint), *cloud.boot_many(2, hint), cloud.boot(hint)]
        assert {server.host for server in servers} == set(COMPUTES)
        assert cloud.boot(hint).host in COMPUTES
