# SPDX-License-Identifier: Apache-2.0
"""Requests decided by the filter scheduler over hosts in memory, with the accounts kept."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import count

from novasched import plugins
from novasched.drivers import Parts
from novasched.drivers.filter_scheduler import FilterScheduler
from novasched.errors import NoValidHost
from novasched.filters import Filter
from novasched.model.host import Host
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.prefilters import Prefilter
from novasched.records.account import Account
from novasched.records.record import Record
from tests.ports import CountingPlacement, StillHosts


class Notebook:
    """Keeps accounts as they are; a second passes between any two looks at its watch."""

    def __init__(self) -> None:
        self.accounts: list[Account] = []
        self._seconds = count(1.0)

    def opened(self, request: Request, seed: int) -> Account:
        """See :class:`novasched.ports.Records`."""
        return Account(request, seed, lambda: next(self._seconds))

    def closed(self, account: Account) -> None:
        """See :class:`novasched.ports.Records`."""
        self.accounts.append(account)

    def close(self) -> None:
        """Nothing is left."""

    @property
    def records(self) -> list[Record]:
        """What is kept of them."""
        return [each.record(str(number), 0.0) for number, each in enumerate(self.accounts)]


class Decided:
    """A driver over hosts with so much room, and what it decided."""

    def __init__(
        self,
        hosts: Sequence[Host],
        placement: CountingPlacement | None = None,
        filters: Sequence[Filter] | None = None,
        prefilters: Iterable[Prefilter] = (),
        settings: Settings | None = None,
    ) -> None:
        values = settings or Settings()
        self.notebook = Notebook()
        self.driver = FilterScheduler(
            Parts(
                values,
                [*prefilters],
                placement or CountingPlacement({host.uuid: 9 for host in hosts}),
                StillHosts(hosts),
                plugins.filters(values) if filters is None else filters,
                plugins.weighers(values),
                records=self.notebook,
            )
        )

    def ask(self, request: Request) -> Account:
        """Decide a request; its account."""
        with suppress(NoValidHost):
            self.driver.select_destinations(request)
        return self.notebook.accounts[-1]


def record_of(account: Account) -> Record:
    """What is kept of an account."""
    return account.record('id', 0.0)
