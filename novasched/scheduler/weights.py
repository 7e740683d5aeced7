# SPDX-License-Identifier: Apache-2.0
"""The weights of hosts.

A weigher gives a raw number for each host. The numbers are normalised, multiplied and
added. The operations on the numbers, and their order, are nova's, so that hosts of
equal weight in nova have equal weights here.

The weight of a host is always a finite number. Where nova's arithmetic gives NaN, which
has no place in an order, :func:`_without_nan` has the rules.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from novasched.scheduler.decision import Contribution, HostWeight
from novasched.scheduler.host_table import HostTable, Numbers
from novasched.scheduler.model.candidate import Candidates
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.host_list import HostList, Rows
from novasched.scheduler.model.request import Request
from novasched.scheduler.plugin import Enabled, Scope
from novasched.scheduler.weighers import BatchWeigher, CandidatesWeigher, Weigher


def no_clock() -> float:
    """A clock that stands still, for callers that need no durations."""
    return 0.0


@dataclass(frozen=True, slots=True)
class Share:
    """The part of the weights of hosts that a weigher adds.

    :ivar bounds: ``minval`` and ``maxval`` of the weigher.
    :ivar raw: may be NaN or infinite. All other numbers of a share in :class:`Weights`
        are finite.
    """

    name: str
    bounds: tuple[float | None, float | None]
    raw: Numbers
    normalised: Numbers
    scales: Numbers
    added: Numbers


@dataclass(frozen=True, slots=True)
class Weights:
    """The weights of hosts, in the order of the hosts.

    :ivar sums: the sums of the shares; finite numbers.
    :ivar seconds: the name of each weigher, and the duration of its call.
    :ivar failing_weighers: the names of weighers with a raw weight of NaN or infinity.
    """

    sums: Numbers
    shares: Sequence[Share] = ()
    seconds: Sequence[tuple[str, float]] = ()
    failing_weighers: Sequence[str] = ()

    def explained(
        self, positions: Sequence[int], hosts: Sequence[Host]
    ) -> tuple[HostWeight, ...]:
        """The weights of some hosts, with the contribution of each weigher, in finite
        numbers.

        :param positions: the positions of the hosts in the order of the weights.
        """
        contributions: list[list[Contribution]] = [[] for _ in positions]
        for share in self.shares:
            columns = (share.raw, share.normalised, share.scales, share.added)
            numbers = [column[positions].tolist() for column in columns]
            numbers_of_hosts = zip(*numbers, strict=True)
            for of_host, (raw, *others) in zip(
                contributions, numbers_of_hosts, strict=True
            ):
                if not math.isfinite(raw):
                    raw = None
                of_host.append(Contribution(share.name, raw, *others))

        weights = []
        for host, total, of_host in zip(
            hosts, self.sums[positions].tolist(), contributions, strict=True
        ):
            weights.append(HostWeight(host.host, host.nodename, total, tuple(of_host)))
        return tuple(weights)


def weigh(
    weighers: Sequence[Enabled[Weigher]],
    hosts: Sequence[Host],
    request: Request,
    clock: Callable[[], float] = no_clock,
    table: HostTable | None = None,
    candidates: Candidates | None = None,
) -> Weights:
    """The weights of hosts, in the order of the hosts. As in nova, a single host is not
    weighed.

    :param clock: a monotonic clock in seconds.
    :param table: keeps the answers for later requests and instances.
    :param candidates: Placement's offer; None if Placement was not asked.
    """
    sums = np.zeros(len(hosts))
    if len(hosts) < 2:
        return Weights(sums)

    table = table or HostTable()
    rows = table.rows(HostList.of(hosts))
    sets = table.sets_of_aggregates(rows)
    shares: list[Share] = []
    seconds: list[tuple[str, float]] = []
    for weigher in weighers:
        began = clock()
        if not weigher.applies(request):
            continue

        plugin = weigher.plugin
        with weigher, np.errstate(all='ignore'):
            if isinstance(plugin, BatchWeigher):
                scales = np.array([plugin.scale(host) for host in hosts])
            else:
                scales = table.scales(weigher, sets)
            # A weigher with a multiplier of 0 for all hosts is not called.
            if scales.any():
                raw = _raw_weights(plugin, hosts, rows, request, table, candidates)
                share = normalised(raw, plugin.minval, plugin.maxval)
                added = share * scales
                sums += added
                bounds = (plugin.minval, plugin.maxval)
                shares.append(Share(weigher.name, bounds, raw, share, scales, added))
        seconds.append((weigher.name, clock() - began))

    # One look at the sum tells whether any weight is NaN or infinite.
    with np.errstate(all='ignore'):
        if not math.isfinite(np.sum(sums)):
            return _without_nan(len(hosts), shares, seconds)
    return Weights(sums, shares, seconds)


def _without_nan(
    number: int, shares: Sequence[Share], seconds: Sequence[tuple[str, float]]
) -> Weights:
    """The weights where a raw weight or a multiplier is NaN or infinite.

    Hosts whose weights nova can compare keep nova's order. Beside these hosts:

    * An infinite raw weight counts as the greatest or least finite raw weight.
    * A host without a raw weight (NaN) gets as little as the worst host, and does not
      change the weights of the other hosts.
    * An infinite multiplier of 0 adds 0, and infinities of both signs add up to 0.

    :param number: the number of hosts.
    """
    finite_shares = []
    failing_weighers = []
    sums = np.zeros(number)
    for share in shares:
        if not np.isfinite(share.raw).all():
            failing_weighers.append(share.name)
        positions = np.zeros(number)
        added = np.zeros(number)

        weighed = ~np.isnan(share.raw)
        if weighed.any():
            positions[weighed] = _positions(share.raw[weighed], *share.bounds)
            products = positions[weighed] * share.scales[weighed]
            products[np.isnan(products)] = 0.0
            added[share.scales != 0] = np.min(products)
            added[weighed] = products

        sums += added
        # The largest number stands for infinity, which no decision record can hold.
        finite_share = replace(
            share,
            normalised=positions,
            scales=np.nan_to_num(share.scales),
            added=np.nan_to_num(added),
        )
        finite_shares.append(finite_share)

    return Weights(np.nan_to_num(sums), finite_shares, seconds, failing_weighers)


def _positions(raw: Numbers, minval: float | None, maxval: float | None) -> Numbers:
    """The normalised raw weights. Where infinities make a position NaN, the position
    among the finite raw weights is taken."""
    positions = normalised(raw, minval, maxval)
    if not np.isnan(positions).any():
        return positions
    finite = raw[np.isfinite(raw)]
    if not len(finite):
        return np.where(raw == math.inf, 1.0, 0.0)

    # The difference of two quarters is never infinite.
    least = np.min(finite) / 4
    greatest = np.max(finite) / 4
    quarters = np.nan_to_num(raw / 4, posinf=greatest, neginf=least)
    low = None if minval is None else minval / 4
    high = None if maxval is None else maxval / 4
    return np.where(np.isnan(positions), normalised(quarters, low, high), positions)


def _raw_weights(
    plugin: Weigher,
    hosts: Sequence[Host],
    rows: Rows,
    request: Request,
    table: HostTable,
    candidates: Candidates | None,
) -> Numbers:
    """The answers of a weigher. A weigher with the scope of a request is called only
    for the hosts without a valid answer in the table."""
    if isinstance(plugin, BatchWeigher) or plugin.scope is Scope.INSTANCE:
        return np.array(plugin.weigh_all(hosts, request), np.float64)

    # Answers without a key last for this try alone.
    key = plugin.request_key(request)
    lasting = key is not None
    if isinstance(plugin, CandidatesWeigher):
        lasting = lasting and _compares_offers(plugin)
    column, stale = table.column((type(plugin), key), rows, float, lasting)
    if lasting and isinstance(plugin, CandidatesWeigher):
        stale = table.compare_offer(
            column,
            rows,
            plugin.offer_changes(request, candidates),
            lambda hosts: plugin.offer_keys(hosts, request, candidates),
        )

    if len(stale):
        changed = table.hosts[stale].tolist()
        if isinstance(plugin, CandidatesWeigher):
            answers = plugin.weigh_offered(changed, request, candidates)
        else:
            answers = plugin.weigh_all(changed, request)
        column.values[stale] = answers
        column.fresh[stale] = True

    values: Numbers = column.values[rows]
    return values


def _compares_offers(plugin: CandidatesWeigher) -> bool:
    """True if a weigher names the parts of an offer that weights depend on."""
    return type(plugin).offer_keys is not CandidatesWeigher.offer_keys


def normalised(
    raw: Numbers, minval: float | None = None, maxval: float | None = None
) -> Numbers:
    """The position of each value between the lowest and the highest value, from 0 to 1;
    0 for equal values."""
    # The functions, since mypy does not accept raw.min() with the types of NumPy 2.5.
    low = np.min(raw) if minval is None else minval
    high = np.max(raw) if maxval is None else maxval
    if low == high:
        return np.zeros(len(raw))
    return (raw - low) / (high - low)
