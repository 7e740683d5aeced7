# SPDX-License-Identifier: Apache-2.0
"""The script of a day: the actions of users, the faults, and their times.

A day has only some kinds of faults, and users who do some things more often than others
("swarm testing", Groce et al., ISSTA 2012). The checks allow for what schedulers cannot
know during a fault, so that a day with all kinds of faults shows little.

Each action has a seed of its own, so that the rest of a script stays the same without
one of its actions. :func:`shortened` looks for the actions without which a problem does
not happen.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random

BUSY_S = 600.0
"""Seconds of a day in which users and faults are active."""
LAST_LONG_S = 300.0
"""Seconds of a day after which no long request begins: it ends long before the day."""
USERS_EVERY_S = (2.0, 3.0, 6.0)
FAULTS_EVERY_S = (25.0, 40.0, 60.0)
"""The mean seconds for an action. Each day has one of these numbers."""

BOOT = 'boot'
BOOT_IN_GROUP = 'boot in a group'
BOOT_IN_ZONE = 'boot in the zone'
BOOT_MANY = 'boot many'
BOOT_PINNED = 'boot with dedicated CPUs'
BOOTS = frozenset((BOOT, BOOT_IN_GROUP, BOOT_IN_ZONE))
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
DATABASES_LAG = 'databases lag'
CLOCK_JUMPS = 'a clock jumps'
COMPUTE_IS_SILENT = 'a nova-compute is silent'
HOST_IS_DISABLED = 'a host is disabled'
HOSTS_CHANGE_ZONE = 'hosts change their zone'
MESSAGES_ARE_FORGED = 'messages are forged'

USERS = {
    BOOT: 5,
    BOOT_IN_GROUP: 3,
    BOOT_IN_ZONE: 3,
    BOOT_MANY: 0.7,
    DELETE: 8,
    EVACUATE: 2,
    RESIZE: 1,
    MIGRATE_LIVE: 1,
    SHELVE: 2,
}
FAULTS = {
    BAD_WEATHER: 4,
    PLACEMENT_STOPS: 2,
    BROKER_STOPS: 2,
    CONNECTIONS_BREAK: 1,
    MESSAGES_GET_LOST: 2,
    DATABASE_FAILS: 3,
    DATABASES_LAG: 6,
    KILL: 2,
    RESTART: 2,
    RELOAD: 1,
    CLOCK_JUMPS: 1,
    COMPUTE_IS_SILENT: 1,
    HOST_IS_DISABLED: 1,
    HOSTS_CHANGE_ZONE: 5,
    MESSAGES_ARE_FORGED: 1,
}
"""The frequency of each action beside the other actions, on a day that has all."""
EAGERNESS = (0.2, 1.0, 4.0)
"""Factors of the frequencies of users' actions. Each day has one for each action."""
KINDS_OF_FAULTS = (1, 2, 3, len(FAULTS))
"""Numbers of the kinds of faults of a day."""
AT_ONCE = ((1,), (1, 1, 1, 2, 8), (8,))
"""Numbers of boots at the same moment. Each day has some of these numbers."""
RUSHES = {
    HOSTS_CHANGE_ZONE: (BOOT_IN_ZONE, 10, 12.0),
    DATABASES_LAG: (BOOT_PINNED, 12, 30.0),
}
"""The boots that come with a fault: their kind, their number, and the seconds in which
they begin. Zones differ between nova and Placement for seconds only, and a database
that lags behind hides a new guest for seconds only."""


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
    wishes = {}
    for kind, share in USERS.items():
        wishes[kind] = share * random.choice(EAGERNESS)
    faults = {}
    for kind in random.sample([*FAULTS], random.choice(KINDS_OF_FAULTS)):
        faults[kind] = FAULTS[kind]

    at_once = random.choice(AT_ONCE)
    actions = []
    for shares, every_s in (
        (wishes, random.choice(USERS_EVERY_S)),
        (faults, random.choice(FAULTS_EVERY_S)),
    ):
        at = random.expovariate(1 / every_s)
        while at < BUSY_S:
            moment = at
            [kind] = random.choices([*shares], [*shares.values()])
            if kind == BOOT_MANY and moment > LAST_LONG_S:
                kind = BOOT
            number = random.choice(at_once) if kind in BOOTS else 1
            for _ in range(number):
                actions.append(Action(moment, kind, random.getrandbits(32)))
                at += random.expovariate(1 / every_s)
            if kind in RUSHES:
                boot, number, seconds = RUSHES[kind]
                for _ in range(number):
                    later = moment + random.uniform(0, seconds)
                    actions.append(Action(later, boot, random.getrandbits(32)))
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
