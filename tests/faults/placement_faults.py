# SPDX-License-Identifier: Apache-2.0
"""What happens to Placement, and what it answers then."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager

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


def conflict(code: str, detail: str) -> bytes:
    error = {'status': 409, 'title': 'Conflict', 'code': code, 'detail': detail}
    return json.dumps({'errors': [error]}).encode()


@contextmanager
def following(site: Site, rule: Rule) -> Iterator[None]:
    site.proxy.faults = rule
    try:
        yield
    finally:
        site.proxy.faults = None
        site.proxy.release()


def fails(
    name: str, what: Callable[[], proxy.Fault], changes_only: bool = False, **how: object
) -> None:
    """A fault for as long as Placement's answers, or those to changes, are of one kind."""

    def happens(site: Site) -> Iterator[None]:
        def rule(method: str, _path: str, _body: bytes) -> proxy.Fault | None:
            return None if changes_only and method not in CHANGES else what()

        with following(site, rule):
            yield

    fault(name, **how)(happens)


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


def conflicting(kind: str) -> Callable[[], proxy.Fault]:
    body = conflict(*CONFLICTS[kind])
    return lambda: proxy.answer(409, body)


def answering(status: int) -> Callable[[], proxy.Fault]:
    return lambda: proxy.answer(status)


fails('Placement slow by 10 s', lambda: proxy.slow(10), seconds=12, patience=60, quick=False)
fails('Placement does nothing', proxy.hang, seconds=OUTAGE_S, quick=False)
fails(
    'Placement does nothing for longer than its timeout',
    lambda: proxy.hang(work=False),
    seconds=OUTAGE_S,
    config=lambda _site: {'placement': {'timeout': 2}},
    quick=False,
)
fails('Placement answers 500', answering(500), seconds=OUTAGE_S, short=2)
for status in (501, 401, 403, 504):
    fails(f'Placement answers {status}', answering(status), seconds=OUTAGE_S, quick=False)
fails('Placement answers 503', answering(503), seconds=OUTAGE_S, short=2)
fails('Placement drops connections', proxy.dropped, seconds=OUTAGE_S, quick=False)
fails('Placement breaks off its answers', proxy.half, seconds=OUTAGE_S, short=2)
fails('Placement answers 100 MB', lambda: proxy.huge(HUGE), quick=False)
fails('Placement answers no JSON', proxy.garbage, seconds=OUTAGE_S, quick=False)
fails('Placement answers nothing', answering(200), seconds=OUTAGE_S, quick=False)
for status in (500, 503):
    fails(
        f'Placement answers {status} for longer than requests wait',
        answering(status),
        seconds=OUTAGE_S,
        config=lambda _site: {'novasched': {'placement_patience': PATIENCE_S}},
        refuses=True,
        quick=False,
    )
for each in CONFLICTS:
    fails(
        f'Placement answers 409: {each}',
        conflicting(each),
        changes_only=True,
        seconds=2,
        refuses=True,
        quick=False,
    )
fails('Placement claims, then no answer', proxy.lost, changes_only=True, seconds=2, varied=True)
fails(
    'Placement claims, then 504',
    lambda: proxy.answer(504, b'Gateway Timeout', work=True, content_type='text/html'),
    changes_only=True,
    seconds=2,
)
