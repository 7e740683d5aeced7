# SPDX-License-Identifier: Apache-2.0
"""Compares nova's host aggregates with the aggregates of the same UUID in Placement.

nova tells Placement when a host joins or leaves an aggregate, and never repeats the
message. After a lost message both differ.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent import futures
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import Any

import sqlalchemy as sa

from novasched.cells.aggregates import AggregateReader
from novasched.cells.engines import connect
from novasched.cells.mappings import Cell, Cells, scatter_gather
from novasched.conf.errors import NovaschedError
from novasched.conf.settings import Settings
from novasched.placement.api import READ_MICROVERSION, PlacementApi
from novasched.placement.wire import ResourceProvider, ResourceProviders
from novasched.scheduler.model.aggregate_list import TENANT_KEY, TRAIT_KEY
from novasched.scheduler.model.host import AVAILABILITY_ZONE, Aggregate
from novasched.service.build import http_adapter
from novasched.tools.check.findings import Finding, Level
from novasched.tools.check.options import NovaConf

SYNC = 'nova-manage placement sync_aggregates'
SET = 'openstack resource provider aggregate set'
MAX_NAMES = 5
"""Number of hosts, or of other things, that a finding names."""

MEMBERS = 'members'
SEGMENT_PREFIX = 'Neutron segment id '
"""Prefix of the names of Neutron's aggregates for routed networks."""

Findings = Iterator[Finding]


@dataclass(frozen=True, slots=True)
class _Use:
    """A prefilter with queries for the members of aggregates.

    :ivar option: the option of ``[scheduler]`` for the prefilter; empty for no
        prefilter.
    :ivar asks_for: tells whether the prefilter may ask for an aggregate.
    :ivar missing: the effect on a host that Placement does not have as a member.
    :ivar foreign: the effect on a host that only Placement has as a member.
    """

    option: str
    asks_for: Callable[[Aggregate], bool]
    missing: str
    foreign: str


def _is_isolating(aggregate: Aggregate) -> bool:
    """True if ``enable_isolated_aggregate_filtering`` applies to an aggregate."""
    for key, value in aggregate.metadata.items():
        if key.startswith(TRAIT_KEY) and value == 'required':
            return True
    return False


USES = (
    _Use(
        'query_placement_for_availability_zone',
        lambda aggregate: AVAILABILITY_ZONE in aggregate.metadata,
        'no server that asks for the zone goes there',
        'servers that ask for the zone may go there',
    ),
    _Use(
        'limit_tenants_to_placement_aggregate',
        lambda aggregate: any(key.startswith(TENANT_KEY) for key in aggregate.metadata),
        'no server of its projects goes there',
        'servers of its projects may go there',
    ),
    _Use(
        'enable_isolated_aggregate_filtering',
        _is_isolating,
        'servers that do not require its traits may go there',
        'no server that does not require its traits goes there',
    ),
    _Use(
        'query_placement_for_routed_network_aggregates',
        lambda aggregate: (aggregate.name or '').startswith(SEGMENT_PREFIX),
        'no server with a port in the segment goes there',
        'servers with a port in the segment may go there',
    ),
)

UNUSED = _Use(
    '',
    lambda aggregate: True,
    'an option that is enabled later would pass over these hosts',
    'an option that is enabled later would find these hosts',
)
"""Stands for aggregates without an enabled prefilter."""

Member = tuple[str, str]
"""The UUID of an aggregate, and the name of a host."""


@dataclass(frozen=True, slots=True)
class NovaAggregates:
    """nova's aggregates, with their hosts and compute nodes.

    :ivar aggregates: aggregates by UUID.
    :ivar hosts: names of the hosts of each aggregate, by UUID.
    :ivar nodes: UUIDs of the compute nodes by host, in the cells that answer.
    :ivar unmapped: hosts of aggregates without a cell.
    :ivar unread: hosts in cells that do not answer.
    :ivar disabled: hosts in disabled cells, where no server is placed.
    """

    aggregates: Mapping[str, Aggregate]
    hosts: Mapping[str, AbstractSet[str]]
    nodes: Mapping[str, AbstractSet[str]]
    unmapped: AbstractSet[str] = frozenset()
    unread: AbstractSet[str] = frozenset()
    disabled: AbstractSet[str] = frozenset()


def check_aggregates(nova_conf: NovaConf) -> Findings:
    """Ask Placement for the members of each aggregate, and for all providers if a host
    of nova's is no member in Placement."""
    try:
        nova = _read(nova_conf)
        http = http_adapter(nova_conf.conf, 'placement', nova_conf.service)
        http.session.timeout = nova_conf.timeout
        api = PlacementApi(http, retry_limit=0.0)
        try:
            ask = partial(_providers, api)
            members = {uuid: ask(f'?member_of={uuid}') for uuid in nova.aggregates}
            yield from compare(nova, members, ask, nova_conf.settings)
        finally:
            api.breaker.stop()
    except NovaschedError as error:
        # The checks of databases and Placement report the error itself.
        yield Finding(Level.NOTE, MEMBERS, f'not compared: {error}')


def _providers(api: PlacementApi, query: str = '') -> list[ResourceProvider]:
    """:raises PlacementUnavailable: Placement does not answer."""
    answer = api.send(
        'GET', f'/resource_providers{query}', microversion=READ_MICROVERSION
    )
    return answer.decode(ResourceProviders).resource_providers


def _read(nova_conf: NovaConf) -> NovaAggregates:
    """Read the aggregates, and the compute nodes of all enabled cells.

    :raises ConfigError: the URL of the API database cannot be used.
    :raises DatabaseUnavailable: the API database does not answer.
    """
    conf = nova_conf.conf
    seconds = nova_conf.timeout
    url = conf.api_database.connection or ''
    with closing(
        connect(conf.api_database, url, 'API database', patience=seconds)
    ) as api:
        state = AggregateReader(api).state()
        rows = api.rows('host_mappings', ('host', 'cell_id'))
        cell_of = {row.host: row.cell_id for row in rows}

        with closing(Cells(api, conf.database, seconds)) as cells:
            cells.refresh()
            with futures.ThreadPoolExecutor(max(1, len(cells.enabled()))) as pool:
                answers = scatter_gather(pool, cells.enabled(), _compute_nodes, seconds)
            disabled = {cell.id for cell in cells.all() if cell.disabled}

    # Only aggregates with a UUID are in Placement.
    aggregates = {each.uuid: each for each in state.aggregates if each.uuid}
    hosts: dict[str, set[str]] = {uuid: set() for uuid in aggregates}
    for host, aggregates_of_host in state.by_host.items():
        for aggregate in aggregates_of_host:
            if aggregate.uuid:
                hosts[aggregate.uuid].add(host)

    nodes = defaultdict[str, set[str]](set)
    for _, rows in answers:
        for row in rows:
            nodes[row.host].add(row.uuid)

    answering = {cell.id for cell, _ in answers}
    mapped = state.by_host.keys() & cell_of.keys()
    return NovaAggregates(
        aggregates,
        hosts,
        nodes,
        unmapped=state.by_host.keys() - mapped,
        unread={host for host in mapped if cell_of[host] not in answering | disabled},
        disabled={host for host in mapped if cell_of[host] in disabled},
    )


def _compute_nodes(cell: Cell) -> Sequence[sa.Row[Any]]:
    return cell.database.rows('compute_nodes', ('host', 'uuid'))


def compare(
    nova: NovaAggregates,
    members: Mapping[str, Sequence[ResourceProvider]],
    all_providers: Callable[[], Iterable[ResourceProvider]],
    settings: Settings,
) -> Findings:
    """Find all differences; one finding says so if there is no difference.

    :param members: the providers in each aggregate of Placement, by UUID of the
        aggregate.
    :param all_providers: asks Placement for every provider, an expensive request in a
        large cloud.
    """
    host_of: dict[str, str] = {}
    for host, node_uuids in nova.nodes.items():
        host_of.update(dict.fromkeys(node_uuids, host))

    absent_nodes: dict[Member, AbstractSet[str]] = {}
    foreign: list[Member] = []
    for uuid, hosts in nova.hosts.items():
        member_uuids = {provider.uuid for provider in members[uuid]}
        for host in sorted(hosts):
            absent = nova.nodes.get(host, set()) - member_uuids
            if absent:
                absent_nodes[uuid, host] = absent
        # Roots that are no compute node are shared disks, networks, and providers of
        # former hosts.
        roots = {provider.root_provider_uuid for provider in members[uuid]}
        hosts_there = {host_of[root] for root in roots & host_of.keys()}
        for host in sorted(hosts_there - hosts):
            foreign.append((uuid, host))

    existing: set[str] = set()
    if absent_nodes:
        existing.update(provider.uuid for provider in all_providers())
    missing: list[Member] = []
    without_provider: set[str] = set()
    for member, node_uuids in absent_nodes.items():
        if node_uuids & existing:
            missing.append(member)
        if node_uuids - existing:
            without_provider.add(member[1])

    findings = [
        *_differences(nova, missing, foreign, settings),
        *_left_out(nova, without_provider, bool(missing)),
    ]
    if all(finding.level is Level.NOTE for finding in findings):
        text = f'the same in Placement, in all aggregates ({len(nova.aggregates)})'
        findings.append(Finding(Level.OK, MEMBERS, text))
    yield from findings


def _differences(
    nova: NovaAggregates,
    missing: Sequence[Member],
    foreign: Sequence[Member],
    settings: Settings,
) -> Findings:
    """A finding for each enabled prefilter, and a finding on aggregates without an
    enabled prefilter.

    :param missing: members that only nova has.
    :param foreign: members that only Placement has.
    """
    enabled = [use for use in USES if getattr(settings, use.option)]
    for use in (*enabled, UNUSED):
        texts = []
        members = _members_for(use, missing, nova, enabled)
        if members:
            names = _named(nova, members)
            texts.append(
                f'missing in Placement: {names}, so that {use.missing}: run {SYNC}'
            )
        members = _members_for(use, foreign, nova, enabled)
        if members:
            names = _named(nova, members)
            texts.append(
                f'in Placement alone: {names}, so that {use.foreign}: take the'
                f' aggregate from the provider with {SET}, or add the host to the'
                f' aggregate; {SYNC} does neither'
            )
        if texts and use is UNUSED:
            yield Finding(Level.WARNING, 'other aggregates', '. '.join(texts))
        elif texts:
            yield Finding(Level.ERROR, f'[scheduler] {use.option}', '. '.join(texts))


def _members_for(
    use: _Use, members: Sequence[Member], nova: NovaAggregates, enabled: Sequence[_Use]
) -> list[Member]:
    """The members in aggregates of a prefilter. ``UNUSED`` stands for the aggregates
    without an enabled prefilter."""
    found = []
    for member in members:
        aggregate = nova.aggregates[member[0]]
        uses = [each for each in enabled if each.asks_for(aggregate)]
        if use in (uses or [UNUSED]):
            found.append(member)
    return found


def _left_out(
    nova: NovaAggregates, without_provider: AbstractSet[str], is_synced: bool
) -> Findings:
    """Find hosts of aggregates that cannot be compared, or at which nova-manage ends.

    :param without_provider: hosts with a compute node that Placement does not know.
    :param is_synced: nova-manage has members to add.
    """
    all_hosts = set[str]().union(*nova.hosts.values())
    nodeless = (
        all_hosts - nova.nodes.keys() - nova.unmapped - nova.unread - nova.disabled
    )
    several: set[str] = set()
    if is_synced:
        several.update(host for host in all_hosts if len(nova.nodes.get(host, ())) > 1)

    or_take_out = 'or take them out of their aggregates'
    for subject, hosts, remedy in (
        (
            'hosts of no cell',
            nova.unmapped,
            f'run nova-manage cell_v2 discover_hosts, {or_take_out}',
        ),
        (
            'hosts without a compute node',
            nodeless,
            f'start nova-compute there, {or_take_out}',
        ),
        (
            'hosts without a provider',
            without_provider,
            (
                'restart nova-compute there, which creates the provider,'
                f' {or_take_out}; {SYNC} ends at the first of them'
            ),
        ),
        (
            'hosts of several compute nodes',
            several,
            f'{SYNC} ends at the first of them; use {SET} for their providers',
        ),
    ):
        if hosts:
            yield Finding(Level.WARNING, subject, f'{listed(hosts)}: {remedy}')
    if nova.unread:
        text = f'{listed(nova.unread)}: not compared, since their cells do not answer'
        yield Finding(Level.NOTE, 'hosts of other cells', text)


def _named(nova: NovaAggregates, members: Sequence[Member]) -> str:
    names = [f'{host} of {nova.aggregates[uuid].name}' for uuid, host in members]
    return listed(names)


def listed(names: Collection[str]) -> str:
    """The number of names, and the first names."""
    first = sorted(names)[:MAX_NAMES]
    if len(names) > MAX_NAMES:
        first.append('...')
    return f'{len(names)} ({", ".join(first)})'
