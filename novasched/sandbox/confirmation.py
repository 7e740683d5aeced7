# SPDX-License-Identifier: Apache-2.0
"""Whether Placement's books agree with what the scheduler said."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

from novasched.sandbox.machines import Machine
from novasched.sandbox.providers import Amounts
from novasched.sandbox.records import Boot, Server, resources


class Books(Protocol):
    """What is read back (``providers.py``)."""

    def allocations(self, consumer: str) -> Mapping[str, Amounts]:
        """What a consumer has, by provider."""

    def usages(self, provider: str) -> Amounts:
        """What is taken from a provider."""


def problems(books: Books, machines: Sequence[Machine], boots: Sequence[Boot]) -> list[str]:
    """Everything that is not as it should be, a line each.

    Every placed server has its flavor's amounts on its host's provider and nothing
    else, no refused one has anything, and each provider's usage is the sum.
    """
    by_name = {machine.name: machine for machine in machines}
    taken: dict[str, Counter[str]] = defaultdict(Counter)
    found = []
    for boot in boots:
        for server in boot.servers:
            machine = by_name.get(server.host)
            if machine is None:
                found.append(f'server {server.uuid}: there is no host {server.host}')
                continue
            taken[machine.uuid].update(resources(server.flavor))
            found += _of_server(books, server, machine)
        placed = {server.uuid for server in boot.servers}
        for uuid in boot.uuids:
            if uuid in placed:
                continue
            if boot.fault is None:
                found.append(f'server {uuid} was neither placed nor refused')
            if held := books.allocations(uuid):
                found.append(f'server {uuid} was refused and has {held}')
    for machine in machines:
        found += _of_provider(books, machine, taken[machine.uuid])
    return found


def _of_server(books: Books, server: Server, machine: Machine) -> Iterator[str]:
    if server.node_uuid != machine.uuid:
        yield f'server {server.uuid}: {machine.name} is not the node {server.node_uuid}'
    held = books.allocations(server.uuid)
    wanted = {machine.uuid: dict(resources(server.flavor))}
    if held != wanted:
        yield f'server {server.uuid} on {machine.name} has {held}, should have {wanted}'


def _of_provider(books: Books, machine: Machine, taken: Amounts) -> Iterator[str]:
    for name, used in books.usages(machine.uuid).items():
        if used != taken[name]:
            yield f'{machine.name}: {used} {name} in use, should be {taken[name]}'
