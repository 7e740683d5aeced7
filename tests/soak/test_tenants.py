# SPDX-License-Identifier: Apache-2.0
"""Judgements of answers, while other tenants delete instances."""

import math
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.lab.daemon import Group
from tests.soak.allocation_audit import AllocationAudit
from tests.soak.schedulers import Journal
from tests.soak.tenants import Tenant
from tests.soak.world import FLAVORS, WRONG, InstanceTemplate, Server, World


@pytest.mark.parametrize(
    ('deleted', 'counted'),
    [
        pytest.param((), {WRONG: 1}, id='all members stay'),
        pytest.param(('here',), {}, id='its member is deleted'),
        pytest.param(('there',), {WRONG: 1}, id='another member is deleted'),
    ],
)
def test_anti_affinity_counts_the_members_that_stay(deleted, counted):
    """The host of a member that is deleted before the answer may be free again."""
    world = World.__new__(World)
    vars(world).update(
        counts=Counter(),
        cloud=SimpleNamespace(placement_url=''),
        _lock=threading.Lock(),
    )
    tenant = Tenant(None, None, AllocationAudit(world, Journal(str), []), {})
    template = InstanceTemplate('group', FLAVORS[0], group=Group('anti-affinity'))
    servers = {}
    for name in ('here', 'there'):
        servers[name] = Server(name, template, host=f'host-{name}')
        world.joined(servers[name])

    kind = template.kind()
    asked_at = time.monotonic()
    for name in deleted:
        world.left(servers[name])
    host = SimpleNamespace(name='host-here', unfit_since=math.inf, aggregates=())
    tenant._check(['new'], template, kind, [host], asked_at)

    assert world.counts == counted
