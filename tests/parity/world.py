# SPDX-License-Identifier: Apache-2.0
"""Databases and networks for comparisons of queries. They do not change."""

import math
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db import options

from novasched.cells.aggregates import AggregateReader
from novasched.cells.database import Database
from novasched.cells.host_reader import HostReader
from novasched.cells.mappings import CELL0, Cells
from novasched.cells.servicegroup import DatabaseServiceGroup
from novasched.conf.settings import Settings
from novasched.placement import query
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.model.basis import Basis
from novasched.scheduler.prefilters import Port, Prefilter, Sources
from novasched.scheduler.prefilters.request_filter import enabled_prefilters
from tests.lab.builders import a_uuid, numbered_uuids
from tests.lab.descriptions import NOW, Case, host_rows
from tests.lab.prefilter_sources import StaticNetwork
from tests.parity.ours import error_of, request_of, settings_of

AGGREGATES = numbered_uuids('aggregate', 10)
METADATA = [
    {'availability_zone': 'az1'},
    {'availability_zone': 'az1', 'filter_tenant_id': 'project'},
    {'availability_zone': 'az2', 'trait:HW_CPU_X86_AVX': 'required'},
    {'trait:CUSTOM_FAST': 'required', 'trait:HW_CPU_X86_AVX2': 'required'},
    {'filter_tenant_id2': 'other', 'x': 'project'},
    {'filter_tenant_id': 'project,third'},
    {'trait:HW_CPU_X86_AVX': 'forbidden', 'trait': 'required'},
    {},
    {'filter_tenant_id': 'PROJECT', 'trait:HW_CPU_X86_AVX': 'Required'},
    {'trait:HW_CPU_HYPERTHREADING': 'required', 'xtrait:A': 'required'},
]
HOSTS = ['host1', 'host2', 'host3']
NODES = {
    'cell1': [('host1', 'host1'), ('host2', 'node1'), ('host2', 'node2')],
    'cell2': [('host3', 'host3')],
}
NETWORKS = [a_uuid('plain network'), a_uuid('routed network'), a_uuid('broken network')]
PORTS = [
    a_uuid('plain port'),
    a_uuid('smart port'),
    a_uuid('bound port'),
    a_uuid('routed port'),
]
SUBNET = a_uuid('subnet')
SEGMENTS = {
    NETWORKS[1]: ['segment1', 'segment2'],
    NETWORKS[2]: ['segment1', 'segment3'],
    SUBNET: ['segment2'],
}
OF_SEGMENTS = {'segment1': [AGGREGATES[4]], 'segment2': [AGGREGATES[5], AGGREGATES[6]]}
KNOWN_PORTS = {
    PORTS[0]: Port(NETWORKS[0]),
    PORTS[1]: Port(NETWORKS[0], vnic_type='remote-managed'),
    PORTS[2]: Port(NETWORKS[1], SUBNET),
    PORTS[3]: Port(NETWORKS[1]),
}


class World:
    """SQLite files that nova's side creates and both sides read.

    :param version: the version of all nova-computes.
    """

    def __init__(self, folder: Path, version: int) -> None:
        self._urls = {name: f'sqlite:///{folder}/{name}' for name in ('api', *NODES)}
        self._version = version
        self._readers: dict[Settings, tuple[HostReader, list[Prefilter]]] = {}

    def description(self) -> Case:
        """The content of the databases and of nova's networks."""
        databases = [{'url': self._urls['api'], 'is_api': True, 'tables': self._api()}]
        for name in NODES:
            tables = self._cell(name)
            databases.append(
                {'url': self._urls[name], 'is_api': False, 'tables': tables}
            )

        ports = {}
        for uuid, port in KNOWN_PORTS.items():
            ports[uuid] = {
                'network_id': port.network_id,
                'binding:vnic_type': port.vnic_type,
                'fixed_ips': [],
            }
            if port.subnet_id:
                ports[uuid]['fixed_ips'] = [{'subnet_id': port.subnet_id}]
        network = {'ports': ports, 'segments': SEGMENTS, 'aggregates': OF_SEGMENTS}
        return {'databases': databases, 'network': network}

    def _api(self) -> dict[str, list[Case]]:
        mappings = [(CELL0, 'cell0', 'none:///')]
        mappings += [(a_uuid(name), name, self._urls[name]) for name in NODES]
        cell_rows = []
        for i, (uuid, name, url) in enumerate(mappings, 1):
            cell_rows.append(
                {
                    'id': i,
                    'uuid': uuid,
                    'name': name,
                    'database_connection': url,
                    'transport_url': 'none:///',
                    'disabled': False,
                }
            )

        hosts = set()
        for cell, nodes in enumerate(NODES.values(), 2):
            hosts.update((cell, host) for host, _ in nodes)
        host_mappings = []
        for cell, host in sorted(hosts):
            host_mappings.append({'cell_id': cell, 'host': host})

        aggregates = []
        metadata = []
        for i, uuid in enumerate(AGGREGATES, 1):
            aggregates.append({'id': i, 'uuid': uuid, 'name': uuid})
        for i, row in enumerate(METADATA, 1):
            for key, value in row.items():
                metadata.append({'aggregate_id': i, 'key': key, 'value': value})

        return {
            'cell_mappings': cell_rows,
            'host_mappings': host_mappings,
            'aggregates': aggregates,
            'aggregate_metadata': metadata,
        }

    def _cell(self, name: str) -> dict[str, list[Case]]:
        hosts = []
        for i, (host, node) in enumerate(NODES[name], 1):
            service = {'version': self._version}
            hosts.append(host_rows(i, {'name': host, 'node': node, 'service': service}))
        services = {host['service']['host']: host['service'] for host in hosts}
        return {
            'compute_nodes': [host['row'] for host in hosts],
            'services': list(services.values()),
        }

    def open(self) -> None:
        """Read the databases, which nova's side has created."""
        conf = cfg.ConfigOpts()
        conf.register_opts(options.database_opts, group='database')
        conf([], default_config_files=[])
        self._api_database = Database(
            sa.create_engine(self._urls['api']), 'API database'
        )
        self._cells = Cells(self._api_database, conf.database)
        self._cells.refresh()
        segments = {}
        for uuid, names in SEGMENTS.items():
            if OF_SEGMENTS.keys() >= set(names):
                segments[uuid] = set().union(*(OF_SEGMENTS[name] for name in names))
        self._network = StaticNetwork(KNOWN_PORTS, {NETWORKS[0]: [], **segments})

    def close(self) -> None:
        for hosts, _ in self._readers.values():
            hosts.close()
        self._cells.close()
        self._api_database.close()

    def ask(self, case: Case) -> Any:
        """novasched's queries for pinned and for floating CPUs; the second query is
        None if there is only one."""
        settings = settings_of(case['config'])
        if settings not in self._readers:
            self._readers[settings] = self._reader(settings)
        hosts, prefilters = self._readers[settings]
        try:
            request = request_of(case)
            basis = Basis(minimum_version=hosts.minimum_version(math.inf))
            for prefilter in prefilters:
                request = prefilter(request, basis)
            request = hosts.with_requested_destination(request)
            first, *fallback = query.build_all(request, settings)
        except Exception as error:
            return error_of(error, 'verdict')
        return [first.string, fallback[0].string if fallback else None]

    def _reader(self, settings: Settings) -> tuple[HostReader, list[Prefilter]]:
        """A reader and prefilters for the settings, composed like the daemon's."""
        aggregates = AggregateReader(self._api_database)
        pending_claims = PendingClaims(settings)
        group = DatabaseServiceGroup(settings.service_down_time)
        hosts = HostReader(
            settings, self._cells, aggregates, pending_claims, group, lambda: NOW
        )
        sources = Sources(aggregates, self._network)
        return hosts, enabled_prefilters(settings, sources)
