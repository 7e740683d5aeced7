# SPDX-License-Identifier: Apache-2.0
"""The script of a day: the actions of users, the faults, and their times.

Each action has a seed of its own, so that the rest of a script stays the same without
one of its actions. :func:`shortened` looks for the actions without which a problem does
not happen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

BUSY_S = 600.0
"""Seconds of a day in which users and faults are active."""
USERS_EVERY_S = 4.0
FAULTS_EVERY_S = 25.0
"""The mean seconds between two actions."""

BOOT = 'boot'
DELETE = 'delete'
EVACUATE = 'evacuate'
RESIZE = 'resize'
MIGRATE_LIVE = 'live-migrate'
SHELVE = 'shelve'
BAD_WEATHER = 'bad weather'
PLACEMENT_STOPS = 'Placement stops'
BROKER_STOPS = 'the broker stops'
CONNECTIONS_BREAK = 'connections to the broker break'
KILL = 'kill'
RESTART = 'restart'
RELOAD = 'reload'
MESSAGES_GET_LOST = 'messages get lost'
DATABASE_FAILS = 'a database fails'
CLOCK_JUMPS = 'a clock jumps'
COMPUTE_IS_SILENT = 'a nova-compute is silent'
HOST_IS_DISABLED = 'a host is disabled'
HOST_CHANGES_ZONE = 'a host changes its zone'
MESSAGES_ARE_FORGED = 'messages are forged'

USERS = {BOOT: 10, DELETE: 8, EVACUATE: 2, RESIZE: 1, MIGRATE_LIVE: 1, SHELVE: 2}
FAULTS = {
    BAD_WEATHER: 4,
    PLACEMENT_STOPS: 2,
    BROKER_STOPS: 2,
    CONNECTIONS_BREAK: 1,
    MESSAGES_GET_LOST: 2,
    DATABASE_FAILS: 3,
    KILL: 2,
    RESTART: 2,
    RELOAD: 1,
    CLOCK_JUMPS: 1,
    COMPUTE_IS_SILENT: 1,
    HOST_IS_DISABLED: 1,
    HOST_CHANGES_ZONE: 5,
    MESSAGES_ARE_FORGED: 1,
}
"""The frequency of each action beside the other actions."""
AT_ONCE = (1, 1, 1, 2, 8)
"""Numbers of boots at the same moment."""


@dataclass(frozen=True)
class Action:
    """Something that a user does, or that befalls the cloud.

    :ivar at: seconds since the begin of the day.
    :ivar seed: decides the particulars.
    """

    at: float
    kind: str
    seed: int


def script_of(seed: int) -> list[Action]:
    """The actions of a day, in order."""
    random = Random(f'script {seed}')
    actions = []
    for shares, every_s in ((USERS, USERS_EVERY_S), (FAULTS, FAULTS_EVERY_S)):
        at = random.expovariate(1 / every_s)
        while at < BUSY_S:
            [kind] = random.choices([*shares], [*shares.values()])
            number = random.choice(AT_ONCE) if kind == BOOT else 1
            for _ in range(number):
                actions.append(Action(at, kind, random.getrandbits(32)))
            at += random.expovariate(1 / every_s)
    return sorted(actions, key=lambda action: action.at)


def shortened(
    script: Sequence[Action],
    fails: Callable[[Sequence[Action]], bool],
    has_time: Callable[[], bool],
) -> Sequence[Action]:
    """A part of a script with which a problem still happens; if there is time, without
    any action that could be left out alone.

    :param fails: tells if the problem happens with a script.
    """
    size = len(script) // 2
    while size:
        begin = 0
        while begin < len(script):
            if not has_time():
                return script
            shorter = [*script[:begin], *script[begin + size :]]
            if fails(shorter):
                script = shorter
            else:
                begin += size
        size //= 2
    return script
