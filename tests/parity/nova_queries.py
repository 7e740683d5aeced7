# SPDX-License-Identifier: Apache-2.0
"""A child process with nova's queries to Placement. The script runs in nova's
virtualenv; see nova_side.py.

The databases are real: SQLite files with the tables of nova's models. The case defines
the answers of Neutron, and the aggregates of network segments.
"""

from __future__ import annotations

from typing import Any

import oslo_messaging as messaging
import sqlalchemy as sa
from nova import context, exception
from nova.conf import CONF
from nova.db.api import api as api_database
from nova.db.api import models as api_models
from nova.db.main import models as cell_models
from nova.network import neutron
from nova.scheduler import host_manager, request_filter, utils
from nova.scheduler.client import report
from nova_child import serve
from nova_side import Answers, Case, Config, dated, request_of, stage, user


class Queries(Answers):
    def __init__(self) -> None:
        super().__init__()
        self._config = Config()
        self._hosts: host_manager.HostManager | None = None

    def world(self, case: Case) -> None:
        """Create the databases from their URLs and the rows of their tables."""
        for database in case['databases']:
            models = api_models if database['is_api'] else cell_models
            engine = sa.create_engine(database['url'])
            models.BASE.metadata.create_all(engine)
            with engine.begin() as connection:
                for name, rows in database['tables'].items():
                    table = models.BASE.metadata.tables[name]
                    for row in rows:
                        connection.execute(sa.insert(table).values(dated(row)))
            if database['is_api']:
                CONF.set_override('connection', database['url'], 'api_database')
        network = Network(case['network'])
        neutron.API = lambda: network
        report.report_client_singleton = lambda: network

    def query(self, case: Case) -> list[str | None]:
        """The queries for pinned and for floating CPUs; the second query is None if
        there is only one."""
        if self._hosts is None:
            api_database.configure(CONF)
            CONF.set_override('track_instance_changes', False, 'filter_scheduler')
            messaging.TransportURL.parse(
                CONF, 'none:///'
            )  # declares the option that cells fill
            self._hosts = host_manager.HostManager()
        self._config.applied(case['config'])
        with stage('request'):
            request = request_of(case)
        with stage('verdict'):
            request_filter.process_reqspec(user(), request)
            asked = utils.resources_from_request_spec(user(), request, self._hosts)
            queries = [asked.to_querystring(), None]
            if (
                asked.cpu_pinning_requested
                and not CONF.workarounds.disable_fallback_pcpu_query
            ):
                fallback = utils.resources_from_request_spec(
                    user(), request, self._hosts, enable_pinning_translate=False
                )
                queries[1] = fallback.to_querystring()
        return queries


class Network:
    """Neutron and Placement, for the prefilters that read ports and segments."""

    def __init__(self, known: Case) -> None:
        self._ports: Case = known['ports']
        self._segments: Case = known['segments']
        """Network or subnet to its segments."""
        self._aggregates: Case = known['aggregates']
        """Segment to aggregates."""

    def show_port(self, _context: context.RequestContext, uuid: str) -> Case:
        if uuid not in self._ports:
            raise exception.PortNotFound(port_id=uuid)
        return {'port': self._ports[uuid]}

    def is_remote_managed_port(
        self, context: context.RequestContext, uuid: str
    ) -> bool:
        return bool(
            self.show_port(context, uuid)['port']['binding:vnic_type']
            == 'remote-managed'
        )

    def get_segment_ids_for_network(self, _context: Any, uuid: str) -> list[str]:
        found: list[str] = self._segments.get(uuid, [])
        return found

    def get_segment_id_for_subnet(self, _context: Any, uuid: str) -> str | None:
        return next(iter(self._segments.get(uuid, [])), None)

    def _get_provider_aggregates(self, _context: Any, uuid: str) -> report.AggInfo:
        return report.AggInfo(
            aggregates=set(self._aggregates.get(uuid, ())), generation=1
        )


if __name__ == '__main__':
    serve(Queries)
