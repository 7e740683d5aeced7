# SPDX-License-Identifier: Apache-2.0
"""The contract of filters, which decide on which hosts an instance may be placed.

``doc/source/filter.rst`` introduces it. The modules of this package are examples.
"""

from collections.abc import Mapping
from typing import Any

from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Data, Plugin, Scope, host_alone

__all__ = ['Data', 'Filter', 'Scope', 'host_alone']


class Filter(Plugin):
    """Judges one host at a time.

    A filter needs :meth:`reject` and ``phrase``. Most filters also have ``scope`` and
    :meth:`applies`. An exception is a bug and fails the request; it never rejects a
    host. ``filters/shared.py`` has base classes for filters that judge many hosts at
    once, or single allocation candidates of a host.
    """

    phrase = ''
    """The reason in a few words that follow a number of hosts, as in "3,120 lack free
    memory"."""

    on_rebuild = False
    """The filter also runs when an instance is rebuilt on its host."""

    def reject(self, host: Host, request: Request) -> str | None:
        """The reason why the host cannot take the instance, in one line; ``None`` if
        the host can."""
        raise NotImplementedError

    def limits(self, host: Host, request: Request) -> Mapping[str, Any]:
        """Limits of a chosen host that nova-compute checks again.

        The keys are the names of nova's SchedulerLimits: ``vcpu``, ``memory_mb``,
        ``disk_gb``, ``numa_topology``.
        """
        return {}
