# SPDX-License-Identifier: Apache-2.0
"""Weighers: which of the remaining hosts is best. This is their contract."""

from collections.abc import Sequence

from novasched.scheduler import plugin
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Plugin, Scope, host_alone

__all__ = ['Scope', 'Weigher', 'host_alone']


class Weigher(Plugin):
    """Gives each host a number, as all of :class:`novasched.scheduler.plugin.Plugin`
    says; the pipeline normalises them and adds them up.

    Few weighers need more than this. One that looks for certain instances has
    ``needed_instances(request)`` name them, one that reads their images ``reads_images
    = True``, and one of another package that several requests may ask at once
    ``thread_safe = True``. One that looks at the host alone has ``request_key =
    host_alone``: its numbers are kept, and it is asked again about the hosts that have
    changed.
    """

    multiplier: str
    """The option that scales the weigher, and the aggregate metadata key that
    overrides it for a host."""

    sign = 1.0
    """-1 turns the meaning of the option and of the metadata round."""

    minval: float | None = None
    """The value that normalises to 0, instead of the least of all hosts."""

    maxval: float | None = None
    """The value that normalises to 1, instead of the greatest of all hosts."""

    reads_images = False

    @property
    def default_scale(self) -> float:
        """The factor where no aggregate says anything: the option's, or 1 without
        one."""
        return self.sign * float(getattr(self.settings, self.multiplier, 1.0))

    def scale(self, host: Host) -> float:
        """The factor on a host: the least number of its aggregates, or the default.

        :raises ValueError: an aggregate has a text that is no number.
        """
        values = host.metadata(self.multiplier) if host.aggregates else None
        if values:
            return self.sign * min(map(float, values))
        return float(self.default_scale)

    def weigh(self, host: Host, request: Request) -> float:
        """The host's raw weight; more is better where the multiplier is positive."""
        raise NotImplementedError

    def weigh_all(self, hosts: Sequence[Host], request: Request) -> list[float]:
        """The raw weights of hosts, in their order, between ``minval`` and
        ``maxval``."""
        raw = [self.weigh(host, request) for host in hosts]
        if plugin.CHECK_SCOPES:
            plugin.check_scope(self.scope, hosts, raw, request, self.weigh)
        if raw and (low := self.minval) is not None and min(raw) < low:
            raw = [low if value < low else value for value in raw]
        if raw and (high := self.maxval) is not None and max(raw) > high:
            raw = [high if value > high else value for value in raw]
        return raw


class CandidatesWeigher(Weigher):
    """Weighs hosts by what Placement says of them along with its candidates."""

    def weigh_offered(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> list[float]:
        """The raw weights of hosts, in their order; Placement was not asked where there
        are no candidates."""
        raise NotImplementedError

    def weigh(self, host: Host, request: Request) -> float:
        return self.weigh_offered([host], request, None)[0]


class BatchWeigher(Weigher):
    """Weighs all hosts in one call, and knows by itself by what each is scaled."""

    multiplier = ''

    def scale(self, host: Host) -> float:
        """The factor for a host's weight."""
        raise NotImplementedError

    def weigh_all(self, hosts: Sequence[Host], request: Request) -> list[float]:
        """The raw weights of all hosts, in their order, between ``minval`` and
        ``maxval``."""
        raise NotImplementedError
