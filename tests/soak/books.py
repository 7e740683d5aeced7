# SPDX-License-Identifier: Apache-2.0
"""What Placement has, compared with what schedulers answered.

A scheduler that does not know what became of a claim may leave more than was answered
for a while, in which it undoes it; less than was answered is wrong at any moment.
"""

import re
import time

from tests.soak.world import FAILED, MISMATCHES, WRONG, Server

UNDO_S = 150.0
"""Seconds in which a scheduler has undone what it can: two minutes and some tries."""
POLL_S = 2.0
NOT_OF_IT = 'Cannot schedule'
"""In what is logged of each request while Placement is left alone, for the sake of one
instance."""
LOG_LINES = 40  # of each log, about one instance

MISSING = 'wrong'
LEFT_OVER = 'left over'
LEFT_WITH_WARNING = 'left with a warning'
WARNINGS = 'warnings that an allocation is left'
LOST = 'lost'
STUCK = 'stuck'
"""A request without an answer, and a move that Placement lets no conductor undo."""
BY_NOVA = ' by nova-scheduler'
REPEATED = 'moves asked for again'
UNFIT = 'destinations refused by a check or a compute'
COLLIDED = "changes of conductors that met a scheduler's"
CHANGED_MEANWHILE = 'refused, since the allocations changed meanwhile'
DOUBTFUL = 'allocations that were too much for a while'
ZEROS = (MISSING, LOST, LEFT_OVER, STUCK, WRONG, FAILED, MISMATCHES)

_WARNING = re.compile(
    r' (?:WARNING|ERROR) .*allocation.*\b(?:is left|are left|given up)\b'
)
"""Lines of novasched that leave an allocation to the operator."""


def is_within(due, there):
    """Whether a consumer holds all that is due to it."""
    return all(there.get(provider) == amounts for provider, amounts in due.items())


class Books:
    """Compares, and tells of differences what everybody did about them."""

    def __init__(self, world, journal, schedulers, undo_s=UNDO_S):
        """:param undo_s: seconds in which a scheduler may undo what is too much."""
        self.world = world
        self.undo_s = undo_s
        self.journal = journal
        self.schedulers = schedulers
        self._since: dict[str, float] = {}
        self._withheld: dict[str, Server] = {}

    def is_right(self, consumer, due):
        """Whether a consumer holds what is due to it and no more; less is wrong."""
        there = self.world.placement.allocations(consumer)
        if not is_within(due, there):
            self._wrong(consumer, there, due)
        return there == due

    def compare(self):
        """Look while nobody acts. Nobody works at an instance that holds too much until
        that is undone."""
        world = self.world
        now = time.monotonic()
        held = world.placement.all_allocations()
        world.count('allocations compared', len(held))
        world.compare_room(held)
        for consumer in sorted(held.keys() | world.expected.keys()):
            there = held.get(consumer, {})
            due = world.expected.get(consumer, {})
            if there == due:
                self._settled(consumer)
            elif not is_within(due, there):
                self._wrong(consumer, there, due)
                self._settled(consumer)
            elif consumer not in self._since:
                self._since[consumer] = now
                world.count(DOUBTFUL)
                if server := world.withhold(consumer):
                    self._withheld[consumer] = server
            elif now - self._since[consumer] > self.undo_s:
                self._left_over(consumer, there, due)
                self._settled(consumer)

    def settle(self):
        """Compare until nothing is too much, or nobody undoes it any more."""
        until = time.monotonic() + self.undo_s + 2 * POLL_S
        self.compare()
        while self._since and time.monotonic() < until:
            time.sleep(POLL_S)
            self.compare()
        self.world.count(WARNINGS, len(self.warnings()))

    def warnings(self):
        """Everything that novasched leaves to the operator."""
        ours = [each for each in self.schedulers if not each.is_novas]
        return [
            line for each in ours for line in each.lines('') if _WARNING.search(line)
        ]

    def story(self):
        counts = self.world.counts
        names = ('requests', 'placed', 'refused', 'deleted', 'moved', REPEATED)
        wrong = [name for name in counts if name in ZEROS or name.endswith(BY_NOVA)]
        told = [f'{counts[name]} {name}' for name in (*names, *wrong)]
        instances = f'{len(self.world.expected)} instances'
        return ', '.join([instances, *told, f'{len(self._since)} in doubt now'])

    def told(self, what, consumer, text):
        """Note what must not have happened, with everything that is known of it."""
        lines = [
            line
            for each in self.schedulers
            for line in each.lines(consumer)[-LOG_LINES:]
            if NOT_OF_IT not in line
        ]
        story = [f'{consumer}: {text}', *self.journal.lines(consumer), *lines]
        if self.journal.is_novas(consumer):
            what += BY_NOVA
        self.world.wrong(what, '\n    '.join(story))

    def _wrong(self, consumer, there, due):
        self.told(
            MISSING,
            consumer,
            f'holds {self._named(there)} instead of {self._named(due)}',
        )
        self._adopt(consumer, there)

    def _left_over(self, consumer, there, due):
        more = [provider for provider in there if provider not in due]
        text = f'holds {self._named(there)}, of which no more than {self._named(due)} is its own'
        if any(consumer in line for line in self.warnings()):
            self.told(LEFT_WITH_WARNING, consumer, text)
        elif self.journal.is_novas(consumer, more):
            self.world.wrong(LEFT_OVER + BY_NOVA, f'{consumer}: {text}')
        else:
            self.told(LEFT_OVER, consumer, text)
        self._adopt(consumer, there)

    def _adopt(self, consumer, there):
        """Let what is there be right from now on, so that it counts once."""
        self.world.expected.pop(consumer, None)
        if there:
            self.world.expected[consumer] = {
                p: dict(amounts) for p, amounts in there.items()
            }

    def _settled(self, consumer):
        self._since.pop(consumer, None)
        if server := self._withheld.pop(consumer, None):
            self.world.give(server)

    def _named(self, held):
        named = {
            self.world.host_of(provider): dict(amounts)
            for provider, amounts in held.items()
        }
        return str(named or 'nothing')
