# SPDX-License-Identifier: Apache-2.0
"""Filters: which hosts can take an instance. This is their contract."""

from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Plugin, Scope, host_alone

__all__ = ['Filter', 'Scope', 'host_alone']


class Filter(Plugin):
    """Judges one host at a time, as all of :class:`novasched.scheduler.plugin.Plugin`
    says. An exception is a bug and fails the request; it never means no.

    Few filters need more than this. One that looks in ``host.instances`` for certain
    instances has ``needed_instances(request)`` name them. One that wants nova-compute
    to check something again has ``limits(host, request)``, with names of
    SchedulerLimits (``vcpu``, ``memory_mb``, ``disk_gb``, ``numa_topology``) and their
    values for a chosen host. One of another package that several requests may ask at
    once has a class attribute ``thread_safe = True``. One that looks at the host alone
    has ``request_key = host_alone``, and one that looks at little of the request a
    method that answers this: verdicts are kept for later requests with an equal key.
    ``filters/shared.py`` has filters that judge many hosts at once, or one allocation
    candidate of a host.
    """

    on_rebuild = False
    """The filter also runs when an instance is rebuilt on the host that it is on."""

    phrase = ''
    """The reason in a few words that follow a number of hosts, as in "3,120 lack free
    memory"."""

    def reject(self, host: Host, request: Request) -> str | None:
        """The reason why the host cannot take the instance, in one line; None if it
        can."""
        raise NotImplementedError
