# SPDX-License-Identifier: Apache-2.0
"""Hosts that refuse again and again: what counts, when one is told of, and when it is
over."""

import logging

import pytest

from novasched.conf.settings import Settings
from novasched.observe import refusals
from novasched.observe.refusals import HostRefusals
from novasched.scheduler.decision import Decision
from novasched.scheduler.model.request import Retry
from tests.lab.builders import a_request
from tests.lab.logs import logged
from tests.lab.ports import Clock

PERIOD = 100.0


def claim(host, instance='i'):
    """A decision in which the claim for an instance was refused there."""
    return Decision(a_request(), 1, 0.0, 0.0, host_refusals=(((host, host), instance),))


def build(instance, *hosts, nodes=None):
    """A decision on a request that names the hosts on which the instance has failed."""
    retry = Retry(1 + len(hosts), tuple(zip(hosts, nodes or hosts, strict=True)))
    return Decision(a_request(instance_uuids=(instance,), retry=retry), 1, 0.0, 0.0)


def names(counted):
    return ''.join(sorted(host for host, _ in counted.refusing()))


@pytest.mark.parametrize(
    ('told', 'counts', 'refusing'),
    [
        # Claims of different instances, and builds, count; what is named again does
        # not.
        ([(0, claim('a', 'i')), (0, claim('a', 'j'))], (2, 0), 'a'),
        ([(0, claim('a', 'i')), (0, claim('b', 'j'))], (2, 0), ''),
        ([(0, claim('a', 'i')), (0, claim('a', 'i'))], (1, 0), ''),
        (
            [(0, build('i', 'a')), (1, build('i', 'a', 'b')), (2, build('j', 'b'))],
            (0, 3),
            'b',
        ),
        ([(0, claim('a', 'i')), (0, build('j', 'a'))], (1, 1), 'a'),
        ([(0, build('i')), (0, Decision(a_request(), 1, 0.0, 0.0))], (0, 0), ''),
        # Nodes are apart; one without a name cannot be told from others.
        (
            [(0, build('i', 'a', nodes=['n'])), (0, build('j', 'a', nodes=['m']))],
            (0, 2),
            '',
        ),
        (
            [(0, build('i', 'a', nodes=[None])), (0, build('j', 'a', nodes=[None]))],
            (0, 0),
            '',
        ),
        # Only what is not older than the period counts, and then it lasts as long.
        ([(0, claim('a', 'i')), (99, claim('a', 'j'))], (2, 0), 'a'),
        ([(0, claim('a', 'i')), (100, claim('a', 'j'))], (2, 0), ''),
        ([(0, claim('a', 'i')), (9, claim('a', 'j')), (99, claim('b'))], (3, 0), 'a'),
        ([(0, claim('a', 'i')), (9, claim('a', 'j')), (109, claim('b'))], (3, 0), ''),
        # It goes on with each refusal that has enough others beside it, and with no
        # other.
        (
            [(0, claim('a', x)) for x in 'ij']
            + [(99, claim('a', 'k')), (198, claim('b'))],
            (4, 0),
            'a',
        ),
        ([(0, claim('a', x)) for x in 'ij'] + [(100, claim('a', 'k'))], (3, 0), ''),
        (
            [(0, build('i', 'a')), (1, build('j', 'a')), (300, build('i', 'a'))],
            (0, 2),
            '',
        ),
    ],
)
def test_what_counts(told, counts, refusing):
    """The limit is two."""
    clock = Clock()
    began = clock.now
    counted = HostRefusals(
        Settings(refusing_host_limit=2, refusing_host_period=PERIOD), clock
    )
    for moment, decision in told:
        clock.now = began + moment
        counted(decision)
    assert tuple(counted.counts.values()) == counts
    assert names(counted) == refusing


@pytest.mark.parametrize(
    ('limit', 'number', 'used'),
    [(3, 3, ' and is tried last for 100 s'), (0, refusals.REPORTED_LIMIT, '')],
)
def test_what_is_told(limit, number, used):
    """One warning says how much a host refused, one line that it is over; also where no
    option has it tried last. Meanwhile a report has it."""
    clock = Clock()
    settings = Settings(refusing_host_limit=limit, refusing_host_period=PERIOD)
    counted = HostRefusals(settings, clock)
    with logged('nova.scheduler.manager', logging.INFO) as records:
        for index in range(number - 1):
            counted(claim('a', f'i{index}'))
        assert (records, counted.lines()) == ([], [])
        counted(build('last', 'a'))
        said = f'a refused {number} servers within 100 s ({number - 1} claims, 1 builds){used}'
        assert counted.lines() == [said]
        clock.now += 1
        counted(build('one more', 'a'))
        [line] = counted.lines()
        assert line.startswith(f'a refused {number + 1} servers')
        clock.now += PERIOD
        counted(build('elsewhere', 'b'))
        assert counted.lines() == []
    assert [(each.levelname, each.getMessage()) for each in records] == [
        ('WARNING', f'Host {said}'),
        ('INFO', 'Host a is no longer one that refuses many servers'),
    ]


def test_memory_is_bounded(monkeypatch):
    """The oldest refusals are forgotten, and with the period whatever a host has
    refused."""
    monkeypatch.setattr(refusals, 'REMEMBERED', 3)
    clock = Clock()
    counted = HostRefusals(Settings(refusing_host_period=PERIOD), clock)
    for instance in ('i', 'j', 'k', 'i', 'l', 'i'):
        counted(claim('a', instance))
    assert counted.counts[refusals.CLAIM] == 5
    clock.now += PERIOD
    counted(claim('b'))
    assert [*counted._recent] == [('b', 'b')]
