# SPDX-License-Identifier: Apache-2.0
"""Plugins of others in the running daemon: blazar's filter, and a package of our making."""

from __future__ import annotations

import importlib.util
import subprocess
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest

from tests.lab.client import NovaClient, Refused, new_uuids
from tests.lab.compute_rows import Flavor
from tests.lab.daemon import Daemon, is_reference
from tests.lab.nova_cloud import PROJECT, NovaCloud
from tests.lab.nova_release import Config, NovaRelease

pytestmark = pytest.mark.skipif(is_reference(), reason='what is tested is our own loading')

ALL_FILTERS = 'nova.scheduler.filters.all_filters'
BLAZAR = 'blazarnova.scheduler.filters.blazar_filter.BlazarFilter'

CODE = """
    import os

    from novasched.scheduler.filters import Filter
    from novasched.scheduler.weighers import Weigher


    class OwnFilter(Filter):
        def reject(self, host, request):
            return None if host.host in request.hint('own') else 'not its own'


    class BrokenFilter(Filter):
        def applies(self, request):
            return bool(request.hint('broken'))

        def reject(self, host, request):
            raise RuntimeError('out of order')


    class LastWeigher(Weigher):
        multiplier = 'ram_weight_multiplier'

        def weigh(self, host, request):
            return float(host.host.rpartition('-')[2])
"""
ENTRY_POINTS = """
    [novasched.filters]
    OwnFilter = acme_scheduling:OwnFilter
    BrokenFilter = acme_scheduling:BrokenFilter

    [novasched.weighers]
    LastWeigher = acme_scheduling:LastWeigher
"""


@pytest.fixture(scope='module')
def four_hosts(cloud: NovaCloud) -> NovaCloud:
    """Four equal hosts: one reserved for our project, one for another, one in blazar's pool
    of free hosts, and one that blazar has nothing to do with."""
    cloud.reset()
    for number in range(1, 5):
        cloud.add_host(f'host-{number}')
    zones = {'availability_zone': 'blazar_zone'}
    cloud.add_aggregate('ours', ['host-1'], metadata={**zones, 'blazar:owner': PROJECT})
    cloud.add_aggregate('theirs', ['host-2'], metadata={**zones, 'blazar:owner': 'another'})
    cloud.add_aggregate('freepool', ['host-3'])
    return cloud


def chosen(client: NovaClient, **asked: object) -> str:
    """The host of one server."""
    [[selection]] = client.select_destinations(new_uuids(), Flavor(), **asked)
    host: str = selection['service_host']
    return host


@pytest.fixture(scope='class', params=['without nova', 'with nova'])
def blazar(
    request: pytest.FixtureRequest, four_hosts: NovaCloud, nova: NovaRelease, directory: Path
) -> Iterator[Daemon]:
    """A scheduler that filters with blazar as it comes from PyPI, nova beside it or not."""
    assert importlib.util.find_spec('blazarnova'), 'blazar-nova is not installed'
    assert importlib.util.find_spec('nova') is None, 'nova is in our own environment'
    environment = {}
    if request.param == 'with nova':
        ask = 'import nova, os; print(os.path.dirname(os.path.dirname(nova.__file__)))'
        found = subprocess.run(
            [str(nova.python), '-c', ask], capture_output=True, text=True, check=True
        )
        # At the end of the path: our own libraries come first.
        path = directory / 'with-nova'
        path.mkdir()
        (path / 'sitecustomize.py').write_text(
            f'import sys\nsys.path.append({found.stdout.strip()!r})\n'
        )
        environment = {'PYTHONPATH': str(path)}
    config: Config = {
        'filter_scheduler': {
            'available_filters': [ALL_FILTERS, BLAZAR],
            'enabled_filters': 'ComputeFilter,BlazarFilter',
        }
    }
    with Daemon(four_hosts, config, environment=environment) as running:
        yield running


@pytest.mark.usefixtures('blazar')
class TestBlazar:
    """A filter written for nova, unmodified, named by its import path."""

    def test_without_a_reservation(self, client: NovaClient) -> None:
        """Only a host in no pool takes a server that names no reservation."""
        assert {chosen(client) for _ in range(4)} == {'host-4'}

    def test_own_reservation(self, client: NovaClient) -> None:
        """The reservation of the server's own project leads to its host."""
        assert chosen(client, hints={'reservation': ['ours']}) == 'host-1'

    @pytest.mark.parametrize('name', ['theirs', 'unknown'])
    def test_no_such_reservation(
        self, four_hosts: NovaCloud, client: NovaClient, name: str
    ) -> None:
        """A reservation of somebody else, or of nobody, is no host, and nothing is left."""
        before = four_hosts.all_allocations()
        with pytest.raises(Refused) as caught:
            client.select_destinations(new_uuids(), Flavor(), hints={'reservation': [name]})
        assert caught.value.no_valid_host
        assert four_hosts.all_allocations() == before


@pytest.fixture(scope='class')
def acme(four_hosts: NovaCloud, directory: Path) -> Iterator[Daemon]:
    """A scheduler with an installed package of filters and weighers, found by entry points."""
    site = directory / 'acme'
    metadata = site / 'acme_scheduling-1.0.dist-info'
    metadata.mkdir(parents=True)
    (site / 'acme_scheduling.py').write_text(dedent(CODE))
    (metadata / 'METADATA').write_text(
        'Metadata-Version: 2.1\nName: acme-scheduling\nVersion: 1.0\n'
    )
    (metadata / 'entry_points.txt').write_text(dedent(ENTRY_POINTS))
    config: Config = {
        'filter_scheduler': {
            'enabled_filters': 'ComputeFilter,BrokenFilter,OwnFilter',
            'weight_classes': 'LastWeigher',
        }
    }
    with Daemon(four_hosts, config, environment={'PYTHONPATH': str(site)}) as running:
        yield running


class TestEntryPoints:
    """A filter and a weigher of another package."""

    @pytest.mark.parametrize(
        ('own', 'host'), [(['host-2', 'host-3'], 'host-3'), (['host-1'], 'host-1')]
    )
    def test_they_decide(self, acme: Daemon, client: NovaClient, own: list[str], host: str) -> None:
        """The filter says which hosts, the weigher which of them."""
        assert chosen(client, hints={'own': own}) == host

    def test_one_that_raises(self, acme: Daemon, four_hosts: NovaCloud, client: NovaClient) -> None:
        """It is named in the log, its request is refused and claims nothing, and the next
        request is served."""
        before = four_hosts.all_allocations()
        hints = {'own': ['host-1'], 'broken': ['yes']}
        with pytest.raises(Refused) as caught:
            client.select_destinations(new_uuids(), Flavor(), hints=hints)
        assert caught.value.no_valid_host
        assert 'out of order' not in str(caught.value)
        assert 'BadPlugin: BrokenFilter raised RuntimeError: out of order' in acme.text()
        assert four_hosts.all_allocations() == before
        assert chosen(client, hints={'own': ['host-1']}) == 'host-1'
