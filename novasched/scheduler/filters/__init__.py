# SPDX-License-Identifier: Apache-2.0
"""The contract of filters, which decide on which hosts an instance may be placed.

``doc/source/filter.rst`` introduces it. The modules of this package are examples.
"""

from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Plugin, Scope, host_alone

__all__ = ['Filter', 'Scope', 'host_alone']


class Filter(Plugin):
    """Judges one host at a time. An exception is a bug and fails the request; it never
    rejects a host.

    Few filters need more than ``scope``, ``phrase``, :meth:`applies` and
    :meth:`reject`. A filter that looks in ``host.instances`` for certain instances
    names them in ``needed_instances(request)``. A filter that makes nova-compute check
    a limit again defines ``limits(host, request)``: the names of nova's SchedulerLimits
    (``vcpu``, ``memory_mb``, ``disk_gb``, ``numa_topology``) with the values for a
    chosen host. A filter of another package that is thread-safe sets ``thread_safe =
    True``. Verdicts are kept for later requests with an equal ``request_key``.

    ``filters/shared.py`` has base classes for filters that judge many hosts at once, or
    single allocation candidates of a host.
    """

    on_rebuild = False
    """The filter also runs when an instance is rebuilt on its host."""

    phrase = ''
    """The reason in a few words that follow a number of hosts, as in "3,120 lack free
    memory"."""

    def reject(self, host: Host, request: Request) -> str | None:
        """The reason why the host cannot take the instance, in one line; ``None`` if
        the host can."""
        raise NotImplementedError
