# SPDX-License-Identifier: Apache-2.0
"""The servers that nova moves, and how."""

from dataclasses import replace

import pytest

from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.requirements import numa
from novasched.tools.plan.planner import copied_mb, price_of
from novasched.tools.plan.servers import Kind, PlacedServer, kind_of_move, obstacle
from tests.lab.builders import a_flavor, a_host, a_request

UP = a_host('a')
DOWN = a_host('a', up=False)
OLDEST = 35
"""The version of nova-compute in Rocky."""
NEWEST = 74


def a_server(extra_specs=None, pci=(), **fields):
    flavor = a_flavor(extra_specs, memory_mb=2048, root_gb=10, ephemeral_gb=5)
    request = a_request(flavor=flavor)
    request = replace(
        request, numa_topology=numa.topology(flavor, {}), pci_requests=tuple(pci)
    )
    return PlacedServer('uuid', 'web', 'a', UP.uuid, request, {}, **fields)


@pytest.mark.parametrize(
    ('state', 'host', 'kind'),
    [
        ('active', UP, Kind.LIVE),
        ('paused', UP, Kind.LIVE),
        ('stopped', UP, Kind.COLD),
        ('error', UP, None),
        ('suspended', UP, None),
        ('active', DOWN, Kind.EVACUATION),
        ('stopped', DOWN, Kind.EVACUATION),
        ('error', DOWN, Kind.EVACUATION),
        ('paused', DOWN, None),
    ],
)
def test_the_states_of_server_and_host_decide_the_kind_of_move(state, host, kind):
    assert kind_of_move(a_server(state=state), host) is kind


PINNED = {'hw:cpu_policy': 'dedicated'}
GPU = PciRequest(1, ({'vendor_id': '10de'},), alias_name='gpu')
MIGRATABLE = PciRequest(1, ({'live_migratable': 'true'},), alias_name='nic')
OF_PORT = PciRequest(1, ({'physical_network': 'net'},), request_id='port')


@pytest.mark.parametrize(
    ('server', 'version', 'why'),
    [
        (a_server(), NEWEST, ''),
        (a_server(unknown='nova has no request of it'), NEWEST, 'nova has no request'),
        (a_server(task='resize_prep'), NEWEST, 'is busy (resize_prep)'),
        (a_server(is_locked=True), NEWEST, 'is locked'),
        (a_server(state='rescued'), NEWEST, 'is rescued, and its host is up'),
        (a_server(PINNED), NEWEST, ''),
        (a_server(PINNED), OLDEST, 'has a NUMA topology, which nova does not migrate'),
        (a_server(PINNED, state='stopped'), OLDEST, ''),
        (a_server(pci=[GPU]), NEWEST, 'has PCI devices that are not live_migratable'),
        (a_server(pci=[MIGRATABLE]), NEWEST, ''),
        (a_server(pci=[OF_PORT]), NEWEST, ''),
        (a_server({'hw:tpm_version': '2.0'}), NEWEST, 'has a TPM with a secret that'),
        (
            a_server({'hw:tpm_version': '2.0', 'hw:tpm_secret_security': 'host'}),
            NEWEST,
            '',
        ),
        (
            a_server({'hw:tpm_version': '2.0', 'hw:tpm_secret_security': 'host'}),
            71,
            'has a TPM, which nova does not migrate live before 33.0.0 (2026.1)',
        ),
        (a_server({'hw:mem_encryption': 'true'}), NEWEST, 'has encrypted memory'),
        (a_server({'accel:device_profile': 'x'}), NEWEST, 'has accelerators of Cyborg'),
        (a_server({'hw:pmem': '4GB'}), 50, 'has persistent memory'),
    ],
)
def test_an_obstacle_is_told_in_the_words_of_nova(server, version, why):
    found = obstacle(server, UP, version)
    assert found.startswith(why)
    assert bool(found) is bool(why)


@pytest.mark.parametrize(
    ('server', 'kind', 'copied', 'price'),
    [
        (a_server(), Kind.LIVE, 2048 + 15 * 1024, 2048 + 15 * 1024),
        (a_server(), Kind.COLD, 15 * 1024, 15 * 1024),
        (a_server(), Kind.EVACUATION, 0, 0),
        (a_server(PINNED), Kind.COLD, 15 * 1024, 30 * 1024),
    ],
)
def test_the_price_of_a_move_is_what_it_copies(server, kind, copied, price):
    assert (copied_mb(server, kind), price_of(server, kind)) == (copied, price)


def test_the_root_disk_of_a_volume_is_not_copied():
    server = a_server()
    volume = replace(server, request=replace(server.request, is_bfv=True))
    assert copied_mb(volume, Kind.COLD) == 5 * 1024
