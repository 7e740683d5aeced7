# SPDX-License-Identifier: Apache-2.0
"""The room for the usual servers."""

import pytest

from novasched.observe.page.hosts import CellView, HostsView
from novasched.observe.page.room import room
from novasched.scheduler.model.usual_guests import UsualGuest, UsualGuests
from tests.lab.builders import a_flavor, a_host
from tests.lab.page_sample import PINNED, a_site, ask, seen

SMALL = a_flavor(name='small', vcpus=1, memory_mb=1024, root_gb=0)
LARGE = a_flavor(name='large', vcpus=6, memory_mb=2048, root_gb=0)
GPU = a_flavor({'resources1:VGPU': '1'}, name='gpu', vcpus=1)
AZ1 = {'availability_zone': 'az1'}


def a_view(*hosts, flavors=(SMALL, LARGE)):
    guests = tuple(UsualGuest(flavor, 5) for flavor in flavors)
    usual = UsualGuests(guests, {'VCPU': 8.0, 'MEMORY_MB': 8192.0})
    return HostsView((CellView('cell', hosts, 0.0),), usual=usual)


def test_fitting_instances_are_counted_by_flavor_and_zone():
    """Each flavor counts by zone, on hosts that are up and enabled."""
    found = room(
        a_view(
            a_host('a', vcpus=8, ram=8192, metadata=AZ1),
            a_host('b', vcpus=5, ram=8192, metadata=AZ1),
            a_host('c', vcpus=12, ram=3072),
            a_host('d', vcpus=64, ram=8192, disabled=True),
            a_host('e', vcpus=64, ram=8192, up=False),
        ),
        'nova',
    )
    assert found.zones == ['az1', 'nova']
    rows = [
        (each.label, each.number, each.fit, each.fit_anywhere) for each in found.flavors
    ]
    assert rows == [
        ('small', 5, {'az1': 8 + 5, 'nova': 3}, 16),
        ('large', 5, {'az1': 1, 'nova': 1}, 2),
    ]


def test_vcpus_are_stranded_where_memory_is_scarce():
    """With memory for two of the small servers, six of eight vCPUs are stranded."""
    found = room(a_view(a_host(vcpus=8, ram=2100), flavors=(SMALL,)), 'nova')
    vcpus = found.stranded['VCPU']
    assert (vcpus.free, vcpus.amount, vcpus.scarcest) == (8, 6, 'MEMORY_MB')
    memory = found.stranded['MEMORY_MB']
    assert (memory.free, memory.amount, memory.scarcest) == (2100, 52, 'MEMORY_MB')


def test_flavors_with_devices_are_not_counted():
    """Only Placement knows the free devices."""
    found = room(a_view(a_host(), flavors=(SMALL, GPU)), 'nova')
    assert [each.label for each in found.flavors] == ['small']
    assert found.with_devices == ['gpu']


def test_tables_are_empty_without_usual_flavors():
    """The page shows empty tables."""
    found = room(HostsView((CellView('cell', [a_host()], 0.0),)), 'nova')
    assert (found.flavors, found.stranded) == ([], {})
    assert room(HostsView(), 'nova').zones == []


@pytest.mark.parametrize('flavor', [SMALL, PINNED, GPU])
def test_no_instance_fits_without_hosts(flavor):
    """No server fits while all cells are silent."""
    found = room(a_view(flavors=(flavor,)), 'nova')
    assert [each.fit_anywhere for each in found.flavors] in ([0], [])


def test_the_room_page_names_flavors_zones_and_resources(tmp_path):
    """The tables of the page name flavors, zones and resources."""
    page, _ = a_site(tmp_path, 60, 1)
    text = seen(ask(page, '/room')).text
    for word in ('m1.small', 'p1.large', 'az1', 'Not counted', 'g1.large', 'PCPU'):
        assert word in text
