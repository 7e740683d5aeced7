# SPDX-License-Identifier: Apache-2.0
"""A cloud of five nodes in two zones and two cells: placements, unusable hosts, and
wrong allocations."""

import logging
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from uuid import uuid4

import pytest

from novasched.conf.errors import NovaschedError
from novasched.rpc import wire
from novasched.scheduler.memory import flavor_resources
from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox.cloud import Sandbox
from novasched.tools.sandbox.computes import SandboxHost
from tests.lab.sandboxed import disable, silence

AZ01 = 'az01'
AZ02 = 'az02'
FIVE_NODES = (
    SandboxHost('osdev-01', zone=AZ01, cell='cell1'),
    SandboxHost('osdev-02', zone=AZ01, cell='cell1'),
    SandboxHost('osdev-03', zone=AZ02, cell='cell2'),
    SandboxHost('osdev-ceph', zone=AZ02, cell='cell2'),
    SandboxHost('osdev-gpu', zone=AZ02, cell='cell2'),
)
ONE = [SandboxHost('one')]
NAMES = {machine.name for machine in FIVE_NODES}
SMALL = Flavor(name='small', flavorid='small', id=1, vcpus=1, memory_mb=512, root_gb=1)
IMPOSSIBLE = Flavor(
    name='vast', flavorid='vast', id=3, vcpus=1000, memory_mb=1, root_gb=1
)
REFUSED = 'No valid host was found. '
LAND = [
    ({'zone': AZ02}, {'osdev-03', 'osdev-ceph', 'osdev-gpu'}),
    ({'force_hosts': ['osdev-02']}, {'osdev-02'}),
    ({'ignore_hosts': sorted(NAMES - {'osdev-gpu'})}, {'osdev-gpu'}),
    ({'requested_destination': wire.Destination(host='osdev-ceph')}, {'osdev-ceph'}),
    ({'image_properties': {'hw_architecture': 'x86_64'}}, NAMES),
]
ARM = {'image_properties': {'hw_architecture': 'aarch64'}}
FAULTS = [
    (IMPOSSIBLE, {}, REFUSED),
    (
        SMALL,
        {'force_hosts': ['osdev-99']},
        f'{REFUSED}No such host - host: osdev-99 node: None ',
    ),
    (SMALL, ARM, f'{REFUSED}There are not enough hosts available.'),
]


def hosts_of(boots):
    hosts = set()
    for boot in boots:
        hosts.update(server.host for server in boot.servers)
    return hosts


def test_instances_are_placed_as_requested():
    """Servers are placed as requested, also concurrently. Refusals have nova's texts. A
    disabled host, known only to nova, and a host with a silent nova-compute get no
    server. At the end Placement agrees with all results."""
    with Sandbox(FIVE_NODES) as cloud:
        with ThreadPoolExecutor(4) as pool:
            for fields, hosts in LAND:
                boots = [
                    *pool.map(lambda asked: cloud.boot(SMALL, **asked), [fields] * 3)
                ]
                assert [len(boot.servers) for boot in boots] == [1] * 3
                assert hosts_of(boots) <= hosts

        for flavor, fields, fault in FAULTS:
            assert cloud.boot(flavor, **fields).fault == fault

        disable(cloud, 'osdev-03', synced=False)
        silence(cloud, 'osdev-gpu')
        cloud.computes.report()
        group = cloud.group('anti-affinity')
        boots = [cloud.boot(SMALL, group=group) for _ in NAMES]
        assert hosts_of(boots) == NAMES - {'osdev-03', 'osdev-gpu'}
        assert cloud.problems() == []


def test_wrong_allocations_and_missing_answers_are_problems():
    """Missing, changed and superfluous allocations are found, with the expected usage
    of the provider. A request without an answer and a logged error are problems,
    too."""
    with Sandbox(ONE) as cloud:
        [lost] = cloud.boot(SMALL).uuids
        [swollen] = cloud.boot(SMALL).uuids
        [kept] = cloud.boot(SMALL).uuids
        (refused,) = cloud.boot(IMPOSSIBLE).uuids
        assert cloud.problems() == []

        cloud.placement.call('DELETE', f'/allocations/{lost}')
        problems = '\n'.join(cloud.problems())
        assert f'server {lost} on one has {{}}, should have' in problems
        assert 'one: 2 VCPU in use, should be 3' in problems
        assert swollen not in problems

        allocate(cloud, swollen, {**flavor_resources(SMALL), 'VCPU': 2}, generation=1)
        allocate(cloud, refused, flavor_resources(SMALL), generation=None)
        problems = '\n'.join(cloud.problems())
        assert f'server {swollen} on one has ' in problems
        assert f'server {refused} was refused and has ' in problems
        assert kept not in problems

        forgotten = str(uuid4())
        cloud.boots[0] = replace(cloud.boots[0], uuids=(lost, forgotten))
        logging.getLogger('nova.scheduler.manager').error('something %s', 'broke')
        problems = cloud.problems()
        assert f'server {forgotten} was neither placed nor refused' in problems
        assert problems[-1] == 'nova.scheduler.manager: something broke'


def allocate(cloud, uuid, amounts, generation):
    """Write a server's allocations without the scheduler."""
    owner = {
        'project_id': 'somebody',
        'user_id': 'somebody',
        'consumer_generation': generation,
    }
    allocations = {ONE[0].uuid: {'resources': amounts}}
    cloud.placement.call(
        'PUT', f'/allocations/{uuid}', allocations=allocations, **owner
    )


def test_options_reach_the_scheduler():
    """Options reach nova.conf. A bad option stops the start, and the next cloud
    starts."""
    bad = {'filter_scheduler': {'enabled_filters': 'NoSuchFilter'}}
    with pytest.raises(NovaschedError, match='NoSuchFilter'), Sandbox(ONE, bad):
        pass
    attempts = {'scheduler': {'max_attempts': 1}}
    with Sandbox([*ONE, SandboxHost('two')], attempts) as cloud:
        (server,) = cloud.boot(SMALL).servers
        assert server.alternates == ()
