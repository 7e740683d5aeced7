# SPDX-License-Identifier: Apache-2.0
"""The contract of weighers, which choose the best of the hosts that passed the filters.

``doc/source/weigher.rst`` introduces it. The modules of this package are examples.
"""

import math
from collections.abc import Hashable, Sequence

from novasched.scheduler import plugin
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.changes import UNVERSIONED, ChangeLog
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Data, Plugin, Scope, host_alone

__all__ = ['Data', 'Scope', 'Weigher', 'host_alone']


class Weigher(Plugin):
    """Gives each host a raw weight. The pipeline normalises the raw weights of all
    hosts to the range 0 to 1, multiplies each by :meth:`scale`, and adds up the
    weighers.

    A weigher needs ``multiplier`` and :meth:`weigh`. Most weighers also have ``scope``.
    """

    multiplier: str
    """The option that scales the weigher, and the aggregate metadata key that overrides
    the option for the hosts of an aggregate."""

    sign = 1.0
    """Set to -1 for an option whose positive values prefer hosts of low raw weight. The
    sign applies to aggregate metadata too."""

    minval: float | None = None
    """The raw weight that is normalised to 0. ``None``: the least of all hosts."""

    maxval: float | None = None
    """The raw weight that is normalised to 1. ``None``: the greatest of all hosts."""

    @property
    def default_scale(self) -> float:
        """The scale on hosts without aggregate metadata: the value of the option, or
        1.0 for a weigher without an option."""
        return self.sign * float(getattr(self.settings, self.multiplier, 1.0))

    def scale(self, host: Host) -> float:
        """The scale on a host.

        If several aggregates of the host set the metadata key, the least value counts,
        as in nova's ``get_weight_multiplier``.

        :raises ValueError: the metadata is not a number.
        """
        values = None
        if host.aggregates:
            values = host.metadata(self.multiplier)
        if not values:
            return float(self.default_scale)

        scales = list(map(float, values))
        # float() reads the text 'nan', whose product has no place in an order.
        if any(map(math.isnan, scales)):
            raise ValueError('nan is not a number')
        return self.sign * min(scales)

    def weigh(self, host: Host, request: Request) -> float:
        """The raw weight of a host. With a positive scale, more is better."""
        raise NotImplementedError

    def weigh_all(self, hosts: Sequence[Host], request: Request) -> list[float]:
        """The raw weights of hosts, in the order of the hosts, cut to the range from
        ``minval`` to ``maxval``."""
        raw = [self.weigh(host, request) for host in hosts]
        if plugin.CHECK_SCOPES:
            plugin.check_scope(self.scope, hosts, raw, request, self.weigh)

        # The weight is the first argument of max() and min(), so that NaN stays NaN. A
        # first NaN is the least and the greatest weight, so that the others are cut.
        low = self.minval
        if raw and low is not None and not min(raw) >= low:
            raw = [max(weight, low) for weight in raw]
        high = self.maxval
        if raw and high is not None and not max(raw) <= high:
            raw = [min(weight, high) for weight in raw]
        return raw


class CandidatesWeigher(Weigher):
    """Weighs hosts by the answer of Placement, such as the traits of providers.

    Requests get answers of different age and kind. Without :meth:`offer_keys`, weights
    are not kept for later requests, even with a ``request_key``.
    """

    def offer_keys(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> Sequence[Hashable]:
        """For each host, the parts of Placement's offer that its weight depends on. The
        kept weight of a host is valid for requests with an equal key."""
        raise NotImplementedError

    def offer_changes(
        self, request: Request, candidates: Candidates | None
    ) -> ChangeLog:
        """The hosts whose :meth:`offer_keys` may have changed since earlier offers, for
        requests with an equal ``request_key``. By default the keys of all hosts are
        compared for each instance."""
        return UNVERSIONED

    def weigh_offered(
        self, hosts: Sequence[Host], request: Request, candidates: Candidates | None
    ) -> list[float]:
        """The raw weights of hosts, in the order of the hosts. ``candidates`` is
        ``None`` for a request that does not ask Placement."""
        raise NotImplementedError

    def weigh(self, host: Host, request: Request) -> float:
        return self.weigh_offered([host], request, None)[0]


class BatchWeigher(Weigher):
    """Weighs all hosts in one call, and has its own rule for the scale of a host."""

    multiplier = ''

    def scale(self, host: Host) -> float:
        """The scale on a host."""
        raise NotImplementedError

    def weigh_all(self, hosts: Sequence[Host], request: Request) -> list[float]:
        """The raw weights of all hosts, in the order of the hosts, within the range
        from ``minval`` to ``maxval``."""
        raise NotImplementedError
