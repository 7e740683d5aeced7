# SPDX-License-Identifier: Apache-2.0
"""Host aggregates as nova has them beside those of the same UUID in Placement, which
nova writes when a host joins or leaves and never again."""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from concurrent import futures
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

import sqlalchemy as sa

from novasched.cells.aggregates import AggregateReader
from novasched.cells.engines import connect
from novasched.cells.mappings import Cell, Cells, scatter_gather
from novasched.conf.errors import NovaschedError
from novasched.conf.settings import Settings
from novasched.placement.api import READ_MICROVERSION, PlacementApi
from novasched.placement.wire import ResourceProvider, ResourceProviders
from novasched.scheduler.model.host import AVAILABILITY_ZONE, Aggregate
from novasched.scheduler.prefilters.request_filter import TENANT_KEY, TRAIT_KEY
from novasched.service.build import http_adapter
from novasched.tools.check.findings import Finding, Level
from novasched.tools.check.options import NovaConf

SYNC = 'nova-manage placement sync_aggregates'
SET = 'openstack resource provider aggregate set'
MAX_NAMES = 5
"""How many hosts a finding names."""
MEMBERS = 'members'
SEGMENT_PREFIX = 'Neutron segment id '
"""The begin of the names of the aggregates that Neutron makes for routed networks."""

Findings = Iterator[Finding]


@dataclass(frozen=True, slots=True)
class _Use:
    """A prefilter that asks Placement for members of aggregates.

    :ivar option: of ``[scheduler]``, which enables it.
    :ivar asks_for: whether it may ask for that aggregate.
    :ivar missing: what becomes of a host that is not a member in Placement.
    :ivar foreign: what becomes of one that is a member in Placement alone.
    """

    option: str
    asks_for: Callable[[Aggregate], bool]
    missing: str
    foreign: str


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
        lambda aggregate: any(
            key.startswith(TRAIT_KEY) and value == 'required'
            for key, value in aggregate.metadata.items()
        ),
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
    'an option that is enabled later would pass them over',
    'an option that is enabled later would find them',
)


Member = tuple[str, str]
"""The UUID of an aggregate, and a host."""


@dataclass(frozen=True, slots=True)
class NovaAggregates:
    """Aggregates as nova has them, and what it knows of their hosts.

    :ivar aggregates: all of them by UUID.
    :ivar hosts: the hosts of each, by the same UUID.
    :ivar nodes: the UUIDs of the compute nodes of each host, where the host's cell
        answers.
    :ivar unmapped: hosts of aggregates that are in no cell.
    :ivar unread: those in cells that do not answer.
    :ivar disabled: those in disabled cells, to which no server goes.
    """

    aggregates: Mapping[str, Aggregate]
    hosts: Mapping[str, AbstractSet[str]]
    nodes: Mapping[str, AbstractSet[str]]
    unmapped: AbstractSet[str] = frozenset()
    unread: AbstractSet[str] = frozenset()
    disabled: AbstractSet[str] = frozenset()


def check_aggregates(nova_conf: NovaConf) -> Findings:
    """Ask Placement for the members of each aggregate, and for all providers where some
    lack."""
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
    except NovaschedError as error:  # which is another finding, too
        yield Finding(Level.NOTE, MEMBERS, f'not compared: {error}')


def _providers(api: PlacementApi, query: str = '') -> list[ResourceProvider]:
    """:raises PlacementUnavailable: Placement does not answer."""
    answer = api.send(
        'GET', f'/resource_providers{query}', microversion=READ_MICROVERSION
    )
    return answer.decode(ResourceProviders).resource_providers


def _read(nova_conf: NovaConf) -> NovaAggregates:
    """:raises ConfigError: the URL of the API database cannot be used.
    :raises DatabaseUnavailable: the API database does not answer.
    """
    conf = nova_conf.conf
    seconds = nova_conf.timeout
    url = conf.api_database.connection or ''
    with closing(
        connect(conf.api_database, url, 'API database', patience=seconds)
    ) as api:
        state = AggregateReader(api).state()
        cell_of = {
            row.host: row.cell_id
            for row in api.rows('host_mappings', ('host', 'cell_id'))
        }
        with closing(Cells(api, conf.database, seconds)) as cells:
            cells.refresh()
            with futures.ThreadPoolExecutor(max(1, len(cells.enabled()))) as pool:
                answers = scatter_gather(pool, cells.enabled(), _compute_nodes, seconds)
            disabled = {cell.id for cell in cells.all() if cell.disabled}
    hosts: dict[str, set[str]] = {
        each.uuid: set() for each in state.aggregates if each.uuid
    }
    for host, aggregates in state.by_host.items():
        for aggregate in aggregates:
            if aggregate.uuid:
                hosts[aggregate.uuid].add(host)
    nodes = defaultdict[str, set[str]](set)
    for row in chain.from_iterable(rows for _, rows in answers):
        nodes[row.host].add(row.uuid)
    read = {cell.id for cell, _ in answers}
    mapped = state.by_host.keys() & cell_of.keys()
    return NovaAggregates(
        {each.uuid: each for each in state.aggregates if each.uuid},
        hosts,
        nodes,
        unmapped=state.by_host.keys() - mapped,
        unread={host for host in mapped if cell_of[host] not in read | disabled},
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
    """Tell all differences, or that there is none.

    :param members: the providers in each aggregate of Placement, by the aggregate's
        UUID.
    :param all_providers: asks for every provider, which is much in a large cloud.
    """
    host_of = {uuid: host for host, uuids in nova.nodes.items() for uuid in uuids}
    lacking: dict[Member, AbstractSet[str]] = {}
    foreign: list[Member] = []
    for uuid, hosts in nova.hosts.items():
        there = {each.uuid for each in members[uuid]}
        for host in sorted(hosts):
            if nodes := nova.nodes.get(host, set()) - there:
                lacking[uuid, host] = nodes
        # Other roots are disks that hosts share, networks, and what former hosts have
        # left.
        roots = {each.root_provider_uuid for each in members[uuid]}
        computes = {host_of[root] for root in roots & host_of.keys()}
        foreign += [(uuid, host) for host in sorted(computes - hosts)]
    known = {each.uuid for each in all_providers()} if lacking else set[str]()
    missing = [each for each, nodes in lacking.items() if nodes & known]
    unknown = {host for (_, host), nodes in lacking.items() if nodes - known}
    found = [
        *_differences(nova, missing, foreign, settings),
        *_left_out(nova, unknown, bool(missing)),
    ]
    if all(each.level is Level.NOTE for each in found):
        text = f'the same in Placement, in all aggregates ({len(nova.aggregates)})'
        found.append(Finding(Level.OK, MEMBERS, text))
    yield from found


def _differences(
    nova: NovaAggregates,
    missing: Sequence[Member],
    foreign: Sequence[Member],
    settings: Settings,
) -> Findings:
    """One finding for each prefilter, and one on aggregates that none asks for."""
    enabled = [use for use in USES if getattr(settings, use.option)]

    def of(use: _Use, several: Sequence[Member]) -> list[Member]:
        return [
            each for each in several if use in _uses(nova.aggregates[each[0]], enabled)
        ]

    for use in (*enabled, UNUSED):
        texts = []
        if them := of(use, missing):
            named = _named(nova, them)
            texts.append(
                f'missing in Placement: {named}, so that {use.missing}: run {SYNC}'
            )
        if them := of(use, foreign):
            named = _named(nova, them)
            texts.append(
                f'in Placement alone: {named}, so that {use.foreign}: take the'
                f' aggregate from the provider with {SET}, or add the host to the'
                f' aggregate; {SYNC} does neither'
            )
        if texts:
            subject = f'[scheduler] {use.option}' if use.option else 'other aggregates'
            level = Level.ERROR if use.option else Level.WARNING
            yield Finding(level, subject, '. '.join(texts))


def _uses(aggregate: Aggregate, enabled: Iterable[_Use]) -> list[_Use]:
    return [use for use in enabled if use.asks_for(aggregate)] or [UNUSED]


def _left_out(
    nova: NovaAggregates, unknown: AbstractSet[str], is_synced: bool
) -> Findings:
    """Hosts of aggregates that cannot be compared, or that keep others from being
    mended.

    :param unknown: hosts of which Placement lacks a provider.
    :param is_synced: members are missing that the command is to add.
    """
    of_aggregates = set[str]().union(*nova.hosts.values())
    nodeless = (
        of_aggregates - nova.nodes.keys() - nova.unmapped - nova.unread - nova.disabled
    )
    out = 'or take them out of their aggregates'
    several = {host for host in of_aggregates if len(nova.nodes.get(host, ())) > 1}
    for subject, hosts, remedy in (
        (
            'hosts of no cell',
            nova.unmapped,
            f'run nova-manage cell_v2 discover_hosts, {out}',
        ),
        ('hosts without a compute node', nodeless, f'start nova-compute there, {out}'),
        (
            'hosts without a provider',
            unknown,
            (
                f'restart nova-compute there, which makes one, {out}; {SYNC} ends at'
                ' the first of them'
            ),
        ),
        (
            'hosts of several compute nodes',
            several if is_synced else (),
            f'{SYNC} ends at the first of them; use {SET} for their providers',
        ),
    ):
        if hosts:
            yield Finding(Level.WARNING, subject, f'{_some(hosts)}: {remedy}')
    if nova.unread:
        text = f'{_some(nova.unread)}: not compared, since their cells do not answer'
        yield Finding(Level.NOTE, 'hosts of other cells', text)


def _named(nova: NovaAggregates, members: Sequence[Member]) -> str:
    return _some([f'{host} of {nova.aggregates[uuid].name}' for uuid, host in members])


def _some(names: Collection[str]) -> str:
    """Number of the names, and a few of them."""
    first = ', '.join(sorted(names)[:MAX_NAMES])
    return f'{len(names)} ({first}{", ..." if len(names) > MAX_NAMES else ""})'
