# SPDX-License-Identifier: Apache-2.0
"""What happens to Placement, and what it answers then."""

import json
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from tests.lab import proxy
from tests.lab.nova_release import Config
from tests.lab.proxy import Rule

from .fault import fault
from .site import Site

HUGE = 100_000_000
OUTAGE_S, PATIENCE_S = 8, 4
CHANGES = ('PUT', 'POST')
CONFLICTS = {
    'a concurrent update': ('placement.concurrent_update', 'Inventory changed while attempting to allocate: Another thread concurrently updated the data. Please retry your update'),
    'a consumer generation': ('placement.concurrent_update', 'consumer generation conflict - expected null but got 1'),
    'no room': ('placement.undefined_code', 'Unable to allocate inventory: Unable to create allocation for VCPU'),
}  # fmt: skip


def conflict(kind: str) -> proxy.Fault:
    code, detail = CONFLICTS[kind]
    error = {'status': 409, 'title': 'Conflict', 'code': code, 'detail': detail}
    return proxy.answer(409, json.dumps({'errors': [error]}).encode())


@contextmanager
def following(site: Site, rule: Rule) -> Iterator[None]:
    site.proxy.faults = rule
    try:
        yield
    finally:
        site.proxy.faults = None
        site.proxy.release()


@fault('Placement stopped', seconds=OUTAGE_S, short=3, varied=True)
def stopped(site: Site) -> Iterator[None]:
    """An upgrade: connections are refused."""
    with site.proxy.down():
        site.placement.stop()
        yield
        site.placement.start()


@fault('Placement killed', seconds=OUTAGE_S, quick=False)
def killed(site: Site) -> Iterator[None]:
    """A crash: connections end in the middle of whatever they are used for."""
    site.placement.kill()
    yield
    site.placement.start()


def _by_keystone(site: Site) -> Config:
    """Credentials that are not for ever."""
    where = {'endpoint_override': site.proxy.url}
    return {'placement': {**where, **site.keystone.options()}}


@fault('token expired', seconds=1, config=_by_keystone)
def token_expired(site: Site) -> Iterator[None]:
    """Placement refuses the token until keystone has issued another."""
    before = site.keystone.given

    def rule(_method: str, _path: str, _body: bytes) -> proxy.Fault | None:
        return proxy.answer(401) if site.keystone.given == before else None

    with following(site, rule):
        yield


LONG = {'seconds': OUTAGE_S, 'quick': False}
SHORT = {'seconds': OUTAGE_S, 'short': 2}
IMPATIENT = {'config': lambda _site: {'placement': {'timeout': 2}}}
REFUSED = {'refuses': True, 'quick': False}
GIVES_UP = {
    'config': lambda _site: {'novasched': {'placement_patience': PATIENCE_S}},
    'refuses': True,
}
Faulty = Callable[[], proxy.Fault]
TABLE: tuple[tuple[str, Faulty, dict[str, Any]], ...] = (
    ('slow by 10 s', lambda: proxy.slow(10), {'seconds': 12, 'patience': 60, 'quick': False}),
    ('does nothing', proxy.hang, LONG),
    ('does nothing for longer than its timeout', lambda: proxy.hang(work=False), {**LONG, **IMPATIENT}),
    ('answers 500', lambda: proxy.answer(500), SHORT),
    ('answers 501', lambda: proxy.answer(501), LONG),
    ('answers 401', lambda: proxy.answer(401), LONG),
    ('answers 403', lambda: proxy.answer(403), LONG),
    ('answers 504', lambda: proxy.answer(504), LONG),
    ('answers 503', lambda: proxy.answer(503), SHORT),
    ('drops connections', proxy.dropped, LONG),
    ('breaks off its answers', proxy.half, SHORT),
    ('answers 100 MB', lambda: proxy.huge(HUGE), {'quick': False}),
    ('answers no JSON', proxy.garbage, LONG),
    ('answers nothing', lambda: proxy.answer(200), LONG),
    ('answers 500 for longer than requests wait', lambda: proxy.answer(500), {**LONG, **GIVES_UP}),
    ('answers 503 for longer than requests wait', lambda: proxy.answer(503), {**LONG, **GIVES_UP}),
)  # fmt: skip
"""What each answer of Placement is like, and how long."""
CHANGES_ONLY: tuple[tuple[str, Faulty, dict[str, Any]], ...] = (
    ('answers 409: a concurrent update', lambda: conflict('a concurrent update'), REFUSED),
    ('answers 409: a consumer generation', lambda: conflict('a consumer generation'), REFUSED),
    ('answers 409: no room', lambda: conflict('no room'), REFUSED),
    ('claims, then no answer', proxy.lost, {'varied': True}),
    ('claims, then 504', lambda: proxy.answer(504, b'Gateway Timeout', True, 'text/html'), {}),
)  # fmt: skip
"""The same of answers to changes, for two seconds."""


def _answering(what: Faulty, methods: Collection[str]) -> Callable[[Site], Iterator[None]]:
    def happens(site: Site) -> Iterator[None]:
        def rule(method: str, _path: str, _body: bytes) -> proxy.Fault | None:
            return what() if method in methods else None

        with following(site, rule):
            yield

    return happens


for name, what, how in TABLE:
    fault(f'Placement {name}', **how)(_answering(what, ('GET', 'DELETE', *CHANGES)))
for name, what, how in CHANGES_ONLY:
    fault(f'Placement {name}', seconds=2, **how)(_answering(what, CHANGES))
