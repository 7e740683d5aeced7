# SPDX-License-Identifier: Apache-2.0
"""Filters: which hosts can take the server. This is their contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from novasched.model.host import Host
from novasched.model.request import Request
from novasched.model.settings import Settings

CANDIDATES = 'candidates'


class Filter:
    """Judges one host at a time.

    A filter keeps no state between calls, does no I/O and never logs: a verdict is
    a value. An exception is a bug and fails the request; it never means no.
    """

    once_per_request = False
    """The verdict on a host cannot change between the servers of one request."""

    once_per_host = False
    """Between the servers of one request the verdict on a host changes with the host alone:
    it depends neither on the server in hand nor on where the others went, and nor does
    whether the filter applies. Only hosts that have changed are judged again."""

    on_rebuild = False
    """The filter also runs when a server is rebuilt on the host that it is on."""

    reads_instances = False
    """The filter looks at ``host.instances``, which is read only for those that do."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings

    @property
    def name(self) -> str:
        """The name in ``enabled_filters`` and in the log."""
        return type(self).__name__

    def for_request(self, memory: dict[str, Any]) -> Filter:
        """The filter for one request: itself, unless it keeps something between the calls
        for one request. ``memory`` is new for each request and common to all plugins; once
        Placement has been asked, ``memory[CANDIDATES]`` holds a list of what it offers for
        each provider UUID, from which a filter may take some away, but for one at least."""
        return self

    def runs_for(self, index: int) -> bool:
        """Whether the filter judges the hosts for that server of a request (0 is the first)."""
        return not (index and self.once_per_request)

    def applies(self, request: Request) -> bool:
        """Whether the request has anything to check, asked once per server."""
        return True

    def reject(self, host: Host, request: Request) -> str | None:
        """Why the host cannot take the server, in one line; None if it can."""
        raise NotImplementedError

    def reject_all(self, hosts: Sequence[Host], request: Request) -> Sequence[str | None]:
        """The verdict on each host, in their order; for filters that compare hosts."""
        return [self.reject(host, request) for host in hosts]

    def limits(self, host: Host, request: Request) -> Mapping[str, Any]:
        """What nova-compute is to check again when the server arrives, for a host that
        is chosen: names of SchedulerLimits (``vcpu``, ``memory_mb``, ``disk_gb``,
        ``numa_topology``) with their values."""
        return {}
