# SPDX-License-Identifier: Apache-2.0
"""Foreign plugins in the running daemon: blazar's filter, and a package made for these
tests."""

import importlib.util
import os
import sys
from textwrap import dedent

import pytest

from tests.lab.daemon import Daemon, Refused
from tests.lab.nova_cloud import PROJECT
from tests.lab.nova_release import run

BLAZAR = 'blazarnova.scheduler.filters.blazar_filter.BlazarFilter'

CODE = """
    import os

    from novasched.scheduler.filters import Filter
    from novasched.scheduler.weighers import Weigher


    class OwnFilter(Filter):
        def applies(self, request):
            return bool(request.hint('own'))

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
def hosts(cloud):
    """Equal hosts: host-1 is reserved for our project, host-2 for another project,
    host-3 is in blazar's pool of free hosts, and the remaining hosts are in no pool."""
    cloud.reset()
    for number in range(1, 7):
        cloud.add_host(f'host-{number}')

    zones = {'availability_zone': 'blazar_zone'}
    cloud.add_aggregate('ours', ['host-1'], metadata={**zones, 'blazar:owner': PROJECT})
    cloud.add_aggregate(
        'theirs', ['host-2'], metadata={**zones, 'blazar:owner': 'another'}
    )
    cloud.add_aggregate('freepool', ['host-3'])
    return cloud


@pytest.fixture(scope='module', params=['without nova', 'with nova'], autouse=True)
def daemon(request, hosts, nova, tmp_path_factory):
    """A scheduler with blazar's unmodified filter, with or without nova in the
    environment, and with an installed package of filters and weighers, which the
    scheduler finds by entry points."""
    assert importlib.util.find_spec('blazarnova'), 'blazar-nova is not installed'
    assert importlib.util.find_spec('nova') is None, 'nova is in our own environment'
    site = tmp_path_factory.mktemp('site')
    if request.param == 'with nova':
        add_nova(nova, site)
    add_package(site)
    config = {
        'filter_scheduler': {
            'available_filters': ['nova.scheduler.filters.all_filters', BLAZAR],
            'enabled_filters': 'ComputeFilter,BlazarFilter,BrokenFilter,OwnFilter',
            'weight_classes': 'LastWeigher',
        }
    }
    with Daemon(hosts, config, environment=import_path(site)) as running:
        yield running


def import_path(site):
    """The environment of a daemon that imports plugins from a folder."""
    paths = [str(site), os.environ.get('PYTHONPATH', '')]
    return {'PYTHONPATH': os.pathsep.join(filter(None, paths))}


def add_nova(nova, site):
    """Let a daemon whose PYTHONPATH has the folder import nova."""
    script = 'import sys; print(*sys.version_info[:2])'
    version = run([str(nova.python), '-c', script]).split()
    if version != [str(number) for number in sys.version_info[:2]]:
        pytest.skip('nova is installed for another Python')

    script = 'import nova, os; print(os.path.dirname(os.path.dirname(nova.__file__)))'
    library = run([str(nova.python), '-c', script]).strip()
    # At the end of the path: the libraries of the daemon come first.
    text = f'import sys\nsys.path.append({library!r})\n'
    (site / 'sitecustomize.py').write_text(text)


def add_package(site):
    """Install a package with filters and weighers in a folder."""
    (site / 'acme_scheduling.py').write_text(dedent(CODE))
    metadata = site / 'acme_scheduling-1.0.dist-info'
    metadata.mkdir()
    (metadata / 'METADATA').write_text(
        'Metadata-Version: 2.1\nName: acme-scheduling\nVersion: 1.0\n'
    )
    (metadata / 'entry_points.txt').write_text(dedent(ENTRY_POINTS))


def test_the_blazar_filter_places_instances_by_reservation(hosts, client):
    """blazar's filter was written for nova and is named by its import path.

    A server without a reservation goes to a host in no pool. A server with a
    reservation of its project goes to the reserved host. A server with an unknown
    reservation, or with the reservation of another project, is refused, and no
    allocation remains.
    """
    assert client.reached() == {'host-4', 'host-5', 'host-6'}
    assert client.chosen(hints={'reservation': ['ours']}) == ['host-1']
    before = hosts.all_allocations()
    for name in ('theirs', 'unknown'):
        with pytest.raises(Refused) as caught:
            client.chosen(hints={'reservation': [name]})
        assert caught.value.no_valid_host
    assert hosts.all_allocations() == before


def test_plugins_are_found_by_entry_points(client):
    """The filter selects two hosts, and the weigher prefers the host with the higher
    number."""
    assert client.chosen(hints={'own': ['host-4', 'host-5']}) == ['host-5']
    assert client.chosen(hints={'own': ['host-4']}) == ['host-4']


def test_a_request_is_refused_if_a_filter_raises(daemon, hosts, client):
    """The log names the filter that raises. The request is refused and claims nothing,
    and the next request is served."""
    before = hosts.all_allocations()
    with pytest.raises(Refused) as caught:
        client.chosen(hints={'own': ['host-4'], 'broken': ['yes']})

    assert caught.value.no_valid_host
    assert 'out of order' not in str(caught.value)
    assert 'BadPlugin: BrokenFilter raised RuntimeError: out of order' in daemon.text()
    assert hosts.all_allocations() == before
    assert client.chosen(hints={'own': ['host-4']}) == ['host-4']
