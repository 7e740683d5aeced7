# SPDX-License-Identifier: Apache-2.0
"""Comparison of the allocations in Placement with the answers of schedulers.

A scheduler that does not know the outcome of a claim may leave more allocations than its
answer names, until the scheduler has undone the claim. Fewer allocations than the answer
names are wrong at any moment.
"""

import re
import time

from tests.soak.world import FAILED, MISMATCHES, WRONG, Server

UNDO_S = 150.0
"""Seconds within which a scheduler undoes a claim: two minutes and some attempts."""
POLL_S = 2.0
NOT_OF_ONE_INSTANCE = 'Cannot schedule'
"""Part of a line that is logged for every request while the Placement circuit is open,
and tells nothing about a single instance."""
LOG_LINES = 40  # of each log, about one instance

MISSING = 'wrong'
LEFT_OVER = 'left over'
LEFT_WITH_WARNING = 'left with a warning'
WARNINGS = 'warnings that an allocation is left'
LOST = 'lost'
STUCK = 'stuck'
"""Requests without an answer, and moves that Placement lets no conductor undo."""
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
"""Lines with which novasched leaves an allocation to the operator."""


def is_within(due, allocated):
    """True if a consumer has at least the allocations that are due to the consumer."""
    return all(allocated.get(provider) == amounts for provider, amounts in due.items())


class AllocationAudit:
    """Compares allocations, and reports differences with the history of the consumer.

    :param undo_s: seconds within which a scheduler may undo surplus allocations.
    """

    def __init__(self, world, journal, schedulers, undo_s=UNDO_S):
        self.world = world
        self.undo_s = undo_s
        self.journal = journal
        self.schedulers = schedulers
        self._surplus_since: dict[str, float] = {}
        self._withheld: dict[str, Server] = {}

    def is_right(self, consumer, due):
        """True if a consumer has exactly the allocations that are due. Fewer
        allocations are reported as wrong."""
        allocated = self.world.placement.allocations(consumer)
        if not is_within(due, allocated):
            self._report_missing(consumer, allocated, due)
        return allocated == due

    def compare(self):
        """Compare all allocations while no request runs. An instance with surplus
        allocations is withheld from tenants until the surplus is undone."""
        world = self.world
        now = time.monotonic()
        allocations = world.placement.all_allocations()
        world.count('allocations compared', len(allocations))
        world.compare_capacity(allocations)

        for consumer in sorted(allocations.keys() | world.expected.keys()):
            allocated = allocations.get(consumer, {})
            due = world.expected.get(consumer, {})
            if allocated == due:
                self._end_doubt(consumer)
            elif not is_within(due, allocated):
                self._report_missing(consumer, allocated, due)
                self._end_doubt(consumer)
            elif consumer not in self._surplus_since:
                self._surplus_since[consumer] = now
                world.count(DOUBTFUL)
                if server := world.withhold(consumer):
                    self._withheld[consumer] = server
            elif now - self._surplus_since[consumer] > self.undo_s:
                self._report_left_over(consumer, allocated, due)
                self._end_doubt(consumer)

    def settle(self):
        """Compare until no surplus is left, or until the time to undo it is over."""
        until = time.monotonic() + self.undo_s + 2 * POLL_S
        self.compare()
        while self._surplus_since and time.monotonic() < until:
            time.sleep(POLL_S)
            self.compare()
        self.world.count(WARNINGS, len(self.warnings()))

    def warnings(self):
        """The log lines with which novasched leaves allocations to the operator."""
        warnings = []
        for scheduler in self.schedulers:
            if not scheduler.is_novas:
                lines = scheduler.lines('')
                warnings += [line for line in lines if _WARNING.search(line)]
        return warnings

    def summary(self):
        """The counts so far, in one line."""
        counts = self.world.counts
        names = ['requests', 'placed', 'refused', 'deleted', 'moved', REPEATED]
        for name in counts:
            if name in ZEROS or name.endswith(BY_NOVA):
                names.append(name)

        parts = [f'{len(self.world.expected)} instances']
        parts += [f'{counts[name]} {name}' for name in names]
        parts.append(f'{len(self._surplus_since)} in doubt now')
        return ', '.join(parts)

    def report_wrong(self, failure, consumer, text):
        """Count a failure, and print the history and the log lines of the consumer.

        :param failure: the name under which the failure counts.
        """
        history = [f'{consumer}: {text}', *self.journal.lines(consumer)]
        for scheduler in self.schedulers:
            for line in scheduler.lines(consumer)[-LOG_LINES:]:
                if NOT_OF_ONE_INSTANCE not in line:
                    history.append(line)

        if self.journal.is_novas(consumer):
            failure += BY_NOVA
        self.world.wrong(failure, '\n    '.join(history))

    def _report_missing(self, consumer, allocated, due):
        text = f'holds {self._by_host(allocated)} instead of {self._by_host(due)}'
        self.report_wrong(MISSING, consumer, text)
        self._adopt(consumer, allocated)

    def _report_left_over(self, consumer, allocated, due):
        surplus = [provider for provider in allocated if provider not in due]
        text = (
            f'holds {self._by_host(allocated)}, of which no more than'
            f' {self._by_host(due)} is its own'
        )
        if any(consumer in line for line in self.warnings()):
            self.report_wrong(LEFT_WITH_WARNING, consumer, text)
        elif self.journal.is_novas(consumer, surplus):
            self.world.wrong(LEFT_OVER + BY_NOVA, f'{consumer}: {text}')
        else:
            self.report_wrong(LEFT_OVER, consumer, text)
        self._adopt(consumer, allocated)

    def _adopt(self, consumer, allocated):
        """Expect the present allocations from now on, so that a difference counts
        once."""
        self.world.expected.pop(consumer, None)
        if allocated:
            expected = self.world.expected[consumer] = {}
            for provider, amounts in allocated.items():
                expected[provider] = dict(amounts)

    def _end_doubt(self, consumer):
        self._surplus_since.pop(consumer, None)
        if server := self._withheld.pop(consumer, None):
            self.world.give(server)

    def _by_host(self, allocated):
        """Allocations as text, with the names of hosts in place of providers."""
        amounts_by_host = {}
        for provider, amounts in allocated.items():
            amounts_by_host[self.world.host_of(provider)] = dict(amounts)
        return str(amounts_by_host or 'nothing')
