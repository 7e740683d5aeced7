# SPDX-License-Identifier: Apache-2.0
"""Hosts that the request itself names or rules out, before any filter runs.

nova's order: a requested destination first, then ignored hosts, then forced hosts
and nodes. Host names are compared without regard to case, node names exactly.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from novasched.scheduler.decision import FilterResult
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Destination, Request

LOG = logging.getLogger('nova.scheduler.host_manager')
REJECTIONS = {
    'requested_destination': 'not the host that the server is to move to',
    'ignore_hosts': 'the request rules it out',
    'force_hosts': 'not the host that the request forces',
    'force_nodes': 'not the node that the request forces',
}
"""The fields of a request that narrow, with the reason against the hosts that each
drops."""


def narrowed(
    hosts: Sequence[Host], request: Request
) -> Iterator[tuple[str, Sequence[Host]]]:
    """Each field of the request that narrows the hosts, with those that it leaves."""
    destination = request.requested_destination
    if destination is not None and destination.host is not None:
        hosts = _at_destination(hosts, destination)
        yield 'requested_destination', hosts
    if request.ignore_hosts:
        hosts = _without_ignored(hosts, request.ignore_hosts)
        yield 'ignore_hosts', hosts
    if hosts and request.force_hosts:
        names = {name.lower() for name in request.force_hosts}
        hosts = [h for h in hosts if h.host.lower() in names]
        _log_forced('host', [h.host for h in hosts], request.force_hosts)
        yield 'force_hosts', hosts
    if hosts and request.force_nodes:
        hosts = [h for h in hosts if h.nodename in request.force_nodes]
        _log_forced('node', [h.nodename for h in hosts], request.force_nodes)
        yield 'force_nodes', hosts


def narrow(
    hosts: Sequence[Host], request: Request, clock: Callable[[], float]
) -> tuple[Sequence[Host], list[FilterResult]]:
    """The hosts that the request itself leaves, and why it rules out the others."""
    results = []
    began = clock()
    for field, kept in narrowed(hosts, request):
        left = {host.uuid for host in kept}
        rejected = [host for host in hosts if host.uuid not in left]
        reasons = [REJECTIONS[field]] * len(rejected)
        results.append(
            FilterResult(field, len(hosts), rejected, reasons, clock() - began)
        )
        hosts = kept
        began = clock()
    return hosts, results


def _at_destination(hosts: Sequence[Host], destination: Destination) -> Sequence[Host]:
    name = destination.host
    node = destination.node
    kept = [h for h in hosts if h.host == name and node in (None, '', h.nodename)]
    if kept:
        LOG.info('Host filter only checking host %s and node %s', name, node)
    else:
        LOG.info(
            'No hosts matched due to not matching requested destination (%s, %s)',
            name,
            node,
        )
    return kept


def _without_ignored(hosts: Sequence[Host], names: Sequence[str]) -> Sequence[Host]:
    """Log the host of each node that goes, spelt and ordered as in the request, like
    nova."""
    ignored = {name.lower(): name for name in names}
    nodes = Counter(name for h in hosts if (name := h.host.lower()) in ignored)
    spelt = [spelling for name, spelling in ignored.items() for _ in range(nodes[name])]
    LOG.info('Host filter ignoring hosts: %s', ', '.join(spelt))
    return [h for h in hosts if h.host.lower() not in ignored]


def _log_forced(kind: str, kept: Sequence[str], forced: Sequence[str]) -> None:
    if kept:
        LOG.info('Host filter forcing available %ss to %s', kind, ', '.join(kept))
    else:
        LOG.info(
            "No %ss matched due to not matching 'force_%ss' value of '%s'",
            kind,
            kind,
            ', '.join(forced),
        )
