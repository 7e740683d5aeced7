# SPDX-License-Identifier: Apache-2.0
"""Servers are built where their request wants them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from .small_cloud import COMPUTES, FICKLE, SmallCloud

NO_VALID_HOST = 'No valid host was found. '
NOT_ENOUGH = 'No valid host was found. There are not enough hosts available.'


def test_boot(cloud: SmallCloud) -> None:
    """A server runs on one of the computes, where it holds what its flavor takes."""
    server = cloud.boot()
    assert server.host in COMPUTES
    assert cloud.allocations() == {
        server.uuid: {server.host: {'VCPU': 1, 'MEMORY_MB': 512, 'DISK_GB': 1}}
    }


def test_multi_create(cloud: SmallCloud) -> None:
    """All servers of one request run, spread over the computes."""
    servers = cloud.boot_many(8)
    assert {server.host for server in servers} == set(COMPUTES)


def test_build_on_an_alternate(cloud: SmallCloud) -> None:
    """A server that its first host fails to build runs on another, where alone it holds
    anything."""
    with cloud.enabled(FICKLE):
        server = cloud.boot()
        builders = {event['host'] for event in cloud.api.events(server.uuid, 'create')}
        assert server.host in COMPUTES
        assert {FICKLE, server.host} <= builders


def test_in_vain(cloud: SmallCloud) -> None:
    """What no compute can hold or run, not even the one that is named, and what an expression
    holds for none of, ends in an error that says so."""
    assert cloud.fault(flavorRef='impossible') == NO_VALID_HOST
    assert cloud.fault(flavorRef='impossible', host='compute-2') == NO_VALID_HOST
    assert cloud.fault(imageRef=cloud.foreign_image) == NOT_ENOUGH
    assert cloud.fault({'query': '[">", "$free_ram_mb", 1000000000]'}) == NOT_ENOUGH


def test_availability_zone(cloud: SmallCloud) -> None:
    """A server of a zone runs in that zone."""
    with cloud.aggregate('compute-3', availability_zone='east'):
        servers = cloud.boot_many(2, availability_zone='east')
        assert {(server.host, server.zone) for server in servers} == {('compute-3', 'east')}


@pytest.mark.parametrize(
    'where',
    [{'availability_zone': 'nova:compute-2'}, {'host': 'compute-2'}],
    ids=['by zone', 'by name'],
)
def test_named_host(cloud: SmallCloud, where: dict[str, Any]) -> None:
    """Servers run on the host that their request names, by zone or by itself."""
    assert [cloud.boot(**where).host for _ in range(2)] == ['compute-2', 'compute-2']


def test_same_host(cloud: SmallCloud) -> None:
    """A server with the hint same_host joins the server that it names."""
    first = cloud.boot()
    assert cloud.boot({'same_host': [first.uuid]}).host == first.host


def test_different_host(cloud: SmallCloud) -> None:
    """Servers with the hint different_host avoid those that they name, until no host is left."""
    servers = [cloud.boot()]
    while len(servers) < len(COMPUTES):
        servers.append(cloud.boot({'different_host': [server.uuid for server in servers]}))
    assert {server.host for server in servers} == set(COMPUTES)
    assert cloud.fault({'different_host': [server.uuid for server in servers]}) == NOT_ENOUGH


def test_query(cloud: SmallCloud) -> None:
    """A server with the hint query runs on a host that the expression holds for."""
    query = ['and', ['>', '$free_ram_mb', 1024], ['=', '$host', 'compute-4']]
    assert cloud.boot({'query': json.dumps(query)}).host == 'compute-4'


def test_flavor_of_an_aggregate(cloud: SmallCloud) -> None:
    """A flavor's aggregate_instance_extra_specs are met by the hosts of an aggregate alone."""
    assert cloud.fault(flavorRef='fast') == NOT_ENOUGH
    with cloud.aggregate('compute-2', 'compute-3', fast='true'):
        servers = cloud.boot_many(4, flavorRef='fast')
        assert {server.host for server in servers} == {'compute-2', 'compute-3'}
