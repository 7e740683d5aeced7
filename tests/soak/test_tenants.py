# SPDX-License-Identifier: Apache-2.0
"""Judgements of answers, while other tenants delete instances."""

import math
import threading
import time
from collections import Counter
from types import SimpleNamespace

import pytest

from tests.lab.daemon import Group
from tests.soak.books import Books
from tests.soak.tenants import Tenant
from tests.soak.twins import Journal
from tests.soak.world import FLAVORS, WRONG, Server, Wish, World


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
    tenant = Tenant(None, None, Books(world, Journal(str), []), {})
    wish = Wish('group', FLAVORS[0], group=Group('anti-affinity'))
    servers = {}
    for name in ('here', 'there'):
        servers[name] = Server(name, wish, host=f'host-{name}')
        world.joined(servers[name])

    kind, asked = wish.kind(), time.monotonic()
    for name in deleted:
        world.left(servers[name])
    host = SimpleNamespace(name='host-here', unfit_since=math.inf, aggregates=())
    tenant._check(['new'], wish, kind, [host], asked)

    assert world.counts == counted
