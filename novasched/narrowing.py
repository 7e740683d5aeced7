# SPDX-License-Identifier: Apache-2.0
"""Hosts that the request itself names or rules out, before any filter runs.

nova's order: a requested destination first, then ignored hosts, then forced hosts
and nodes. Host names are compared without regard to case, node names exactly.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Sequence

from novasched.model.host import Host
from novasched.model.request import Destination, Request
from novasched.records.looks import UNSEEN, Unseen

LOG = logging.getLogger('nova.scheduler.host_manager')
WHY = {
    'requested_destination': 'not the host that the server is to move to',
    'ignore_hosts': 'the request rules it out',
    'force_hosts': 'not the host that the request forces',
    'force_nodes': 'not the node that the request forces',
}
"""The fields of a request that narrow, with what each has against the hosts that it drops."""


def narrow(hosts: Sequence[Host], request: Request, look: Unseen = UNSEEN) -> Sequence[Host]:
    """The hosts that the request leaves to be filtered."""
    wanted = request.requested_destination
    if wanted is not None and wanted.host is not None:
        hosts = _told(look, 'requested_destination', hosts, _at_destination(hosts, wanted))
    if request.ignore_hosts:
        kept = _without_ignored(hosts, request.ignore_hosts)
        hosts = _told(look, 'ignore_hosts', hosts, kept)
    if hosts and request.force_hosts:
        names = {name.lower() for name in request.force_hosts}
        kept = [h for h in hosts if h.host.lower() in names]
        _log_forced('host', [h.host for h in kept], request.force_hosts)
        hosts = _told(look, 'force_hosts', hosts, kept)
    if hosts and request.force_nodes:
        kept = [h for h in hosts if h.nodename in request.force_nodes]
        _log_forced('node', [h.nodename for h in kept], request.force_nodes)
        hosts = _told(look, 'force_nodes', hosts, kept)
    return hosts


def skips_filters(request: Request) -> bool:
    """Whoever forces a host gets it unfiltered, unless a check type is named."""
    return bool(request.force_hosts or request.force_nodes) and not request.is_checked


def _told(look: Unseen, field: str, hosts: Sequence[Host], kept: Sequence[Host]) -> Sequence[Host]:
    """The hosts that a field of the request leaves, after its look has heard of the others."""
    left = set(map(id, kept))
    rejected = {id(host): WHY[field] for host in hosts if id(host) not in left}
    look.passed(field, hosts, rejected, len(hosts))
    return kept


def _at_destination(hosts: Sequence[Host], wanted: Destination) -> Sequence[Host]:
    kept = [h for h in hosts if h.host == wanted.host and wanted.node in (None, '', h.nodename)]
    if kept:
        LOG.info('Host filter only checking host %s and node %s', wanted.host, wanted.node)
    else:
        LOG.info(
            'No hosts matched due to not matching requested destination (%s, %s)',
            wanted.host,
            wanted.node,
        )
    return kept


def _without_ignored(hosts: Sequence[Host], names: Sequence[str]) -> Sequence[Host]:
    """nova names each node's host, as the request spells it and in the order there."""
    ignored = {name.lower(): name for name in names}
    found = Counter(name for h in hosts if (name := h.host.lower()) in ignored)
    told = [each for name, each in ignored.items() for _ in range(found[name])]
    LOG.info('Host filter ignoring hosts: %s', ', '.join(told))
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
