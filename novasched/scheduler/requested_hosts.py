# SPDX-License-Identifier: Apache-2.0
"""Requested destination, ignored hosts and forced hosts, applied before any filter.

The order is nova's: a requested destination first, then ignored hosts, then forced
hosts and nodes. Host names are compared without regard to case, node names exactly.
"""

import logging
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from itertools import compress
from operator import not_

from novasched.conf.redaction import cut
from novasched.scheduler.decision import FilterResult
from novasched.scheduler.model.host import Host, uuid_of
from novasched.scheduler.model.request import Destination, Request

MAX_LOGGED_CHARACTERS = 2_000
"""Maximum length of unknown names in the log. Users send names of any length."""

LOG = logging.getLogger('nova.scheduler.host_manager')
REJECTIONS = {
    'requested_destination': 'not the host that the server is to move to',
    'ignore_hosts': 'the request rules it out',
    'force_hosts': 'not the host that the request forces',
    'force_nodes': 'not the node that the request forces',
}
"""Reason for the rejected hosts, by field of the request."""


def hosts_after_each_field(
    hosts: Sequence[Host], request: Request
) -> Iterator[tuple[str, Sequence[Host]]]:
    """Yield the hosts that remain after each field of the request."""
    destination = request.requested_destination
    if destination is not None and destination.host is not None:
        hosts = _at_destination(hosts, destination)
        yield 'requested_destination', hosts

    if request.ignore_hosts:
        hosts = _without_ignored(hosts, request.ignore_hosts)
        yield 'ignore_hosts', hosts

    if hosts and request.force_hosts:
        names = set(map(str.lower, request.force_hosts))
        hosts = [host for host in hosts if host.host.lower() in names]
        _log_forced('host', [host.host for host in hosts], request.force_hosts)
        yield 'force_hosts', hosts

    if hosts and request.force_nodes:
        hosts = [host for host in hosts if host.nodename in request.force_nodes]
        _log_forced('node', [host.nodename for host in hosts], request.force_nodes)
        yield 'force_nodes', hosts


def keep_requested_hosts(
    hosts: Sequence[Host], request: Request, clock: Callable[[], float]
) -> tuple[Sequence[Host], list[FilterResult]]:
    """Return the remaining hosts, and the rejected hosts with reasons.

    :param clock: a monotonic clock in seconds.
    """
    results = []
    began = clock()
    for field, remaining in hosts_after_each_field(hosts, request):
        uuids = set(map(uuid_of, remaining))
        rejected = [host for host in hosts if host.uuid not in uuids]
        reasons = [REJECTIONS[field]] * len(rejected)
        seconds = clock() - began
        results.append(FilterResult(field, len(hosts), rejected, reasons, seconds))

        hosts = remaining
        began = clock()
    return hosts, results


def _at_destination(hosts: Sequence[Host], destination: Destination) -> Sequence[Host]:
    name = destination.host
    node = destination.node
    remaining = []
    for host in hosts:
        if host.host == name and node in (None, '', host.nodename):
            remaining.append(host)

    if remaining:
        LOG.info('Host filter only checking host %s and node %s', name, node)
    else:
        LOG.info(
            'No hosts matched due to not matching requested destination (%s, %s)',
            cut(str(name), MAX_LOGGED_CHARACTERS),
            cut(str(node), MAX_LOGGED_CHARACTERS),
        )
    return remaining


def _without_ignored(hosts: Sequence[Host], names: Sequence[str]) -> Sequence[Host]:
    """Drop the ignored hosts, and log the name of the host for each dropped node.

    As in nova, the log has the spelling and the order of the request.
    """
    spelling_by_name = {name.lower(): name for name in names}
    is_ignored = [host.host.lower() in spelling_by_name for host in hosts]
    remaining = [*compress(hosts, map(not_, is_ignored))]
    ignored = compress(hosts, is_ignored)
    node_counts = Counter(host.host.lower() for host in ignored)

    logged = []
    for name, spelling in spelling_by_name.items():
        logged += [spelling] * node_counts[name]
    LOG.info('Host filter ignoring hosts: %s', ', '.join(logged))
    return remaining


def _log_forced(kind: str, remaining: Sequence[str], forced: Sequence[str]) -> None:
    if remaining:
        LOG.info('Host filter forcing available %ss to %s', kind, ', '.join(remaining))
    else:
        LOG.info(
            "No %ss matched due to not matching 'force_%ss' value of '%s'",
            kind,
            kind,
            cut(', '.join(forced), MAX_LOGGED_CHARACTERS),
        )
