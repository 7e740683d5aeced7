# SPDX-License-Identifier: Apache-2.0
"""Hosts that must not be used, and books that do not agree."""

import logging
from dataclasses import replace
from uuid import uuid4

import pytest

from novasched.conf.errors import NovaschedError
from novasched.scheduler.memory import flavor_resources
from novasched.tools.sandbox.cloud import Sandbox
from novasched.tools.sandbox.computes import SandboxHost
from tests.sandbox.conftest import IMPOSSIBLE, NAMES, SMALL

ONE = [SandboxHost('one')]


@pytest.mark.parametrize('synced', [True, False], ids=['placement knows', 'only nova knows'])
def test_disabled_host(fresh_cloud, synced):
    """A disabled host is passed over, from the moment at which nova knows."""
    fresh_cloud.computes.disable('osdev-03')
    if synced:
        fresh_cloud.placement.disable(fresh_cloud.computes.machines['osdev-03'].uuid)
    assert used_by(fresh_cloud) == NAMES - {'osdev-03'}


def test_silent_host(fresh_cloud):
    """A host whose nova-compute has not been heard of is passed over."""
    fresh_cloud.computes.silence('osdev-gpu')
    fresh_cloud.computes.report()
    assert used_by(fresh_cloud) == NAMES - {'osdev-gpu'}


def used_by(cloud):
    """The hosts that an anti-affinity group can have, all of which it gets."""
    group = cloud.group('anti-affinity')
    boots = [cloud.boot(SMALL, group=group) for _ in NAMES]
    return {server.host for boot in boots for server in boot.servers}


def test_books_that_do_not_agree():
    """A server without its allocation, one with more than its flavor, and a refused one
    that holds something are each found out; so is what the provider's usage should be."""
    with Sandbox(ONE) as cloud:
        lost, swollen, kept = (cloud.boot(SMALL).servers[0].uuid for _ in range(3))
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


def allocate(cloud, uuid, amounts, generation):
    """Write a server's allocations behind the scheduler's back."""
    cloud.placement.call(
        'PUT',
        f'/allocations/{uuid}',
        allocations={ONE[0].uuid: {'resources': amounts}},
        consumer_generation=generation,
        project_id='somebody',
        user_id='somebody',
    )


def test_server_without_an_answer():
    """An answer that is too short, for fewer servers than were asked for, is found out."""
    with Sandbox(ONE) as cloud:
        (server,) = cloud.boot(SMALL).servers
        forgotten = str(uuid4())
        cloud.boots[0] = replace(cloud.boots[0], uuids=(server.uuid, forgotten))
        assert cloud.problems() == [f'server {forgotten} was neither placed nor refused']


def test_logged_error():
    """What a service hides from its caller and logs as an error is not confirmed."""
    with Sandbox(ONE) as cloud:
        logging.getLogger('nova.scheduler.manager').error('something %s', 'broke')
        assert cloud.problems() == ['nova.scheduler.manager: something broke']


def test_options_reach_the_scheduler():
    """Options go into nova.conf; a bad one stops the start, and the next cloud starts."""
    bad = {'filter_scheduler': {'enabled_filters': 'NoSuchFilter'}}
    with pytest.raises(NovaschedError, match='NoSuchFilter'), Sandbox(ONE, bad):
        pass
    attempts = {'scheduler': {'max_attempts': 1}}
    with Sandbox([*ONE, SandboxHost('two')], attempts) as cloud:
        (server,) = cloud.boot(SMALL).servers
        assert server.alternates == ()
