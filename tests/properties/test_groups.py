# SPDX-License-Identifier: Apache-2.0
"""Requests that name instances, decided with the named instances or all instances."""

import logging
from contextlib import closing
from dataclasses import replace
from itertools import chain

import pytest
import sqlalchemy as sa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.claims.pending_claims import PendingClaims
from novasched.scheduler.drivers import SchedulerDeps
from novasched.scheduler.drivers.filter_scheduler import FilterScheduler
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.plugin import Data
from novasched.scheduler.ports import NEEDS_NOTHING
from novasched.tools.sandbox import databases as tables
from tests.lab.builders import a_flavor, a_group, a_request, a_uuid
from tests.lab.counting_placement import CountingPlacement
from tests.lab.logs import logged, rejections
from tests.lab.nova_databases import NovaDatabases

CELLS = {'cell1': ('h0', 'h1', 'h2'), 'cell2': ('h3', 'h4')}
HOSTS = sorted(chain.from_iterable(CELLS.values()))
UUIDS = [f'i{number}' for number in range(8)]
NEW = ('n0', 'n1', 'n2')
FILTERS = (
    'ServerGroupAntiAffinityFilter',
    'ServerGroupAffinityFilter',
    'SameHostFilter',
    'DifferentHostFilter',
)

_some = st.lists(st.sampled_from([*UUIDS, *NEW, 'stranger']), max_size=5)
_host = st.sampled_from(HOSTS)
ROWS = st.dictionaries(
    st.sampled_from([*UUIDS, 'n0']), st.tuples(st.none() | _host, st.booleans())
)
POLICY = st.sampled_from(
    [
        None,
        'anti-affinity',
        'affinity',
        'soft-affinity',
        'soft-anti-affinity',
        'unheard of',
    ]
)
RULES = st.sampled_from(
    [{}, {'max_server_per_host': '2'}, {'max_server_per_host': 'two'}]
)
HINTS = st.fixed_dictionaries(
    {}, optional={'same_host': _some, 'different_host': _some, 'other': _some}
)
REQUEST = st.fixed_dictionaries(
    {
        'policy': POLICY,
        'rules': RULES,
        'members': _some,
        'hosts': st.lists(_host, max_size=2),
        'hints': HINTS,
        'count': st.integers(1, 3),
        'forced': st.booleans(),
    }
)
FLAVORS = st.lists(st.sampled_from([1, 2, 3, None]), min_size=9, max_size=9)
PENDING = st.dictionaries(st.sampled_from([*UUIDS, 'p']), _host, max_size=3)


class Whole:
    """A reader of hosts that always reads all instances, also for requests that name
    instances."""

    def __init__(self, reader):
        self._reader = reader
        self.prefetch = reader.prefetch
        self.minimum_version = reader.minimum_version
        self.with_requested_destination = reader.with_requested_destination

    def read(self, uuids, request, needs=NEEDS_NOTHING, basis=FRESH):
        whole = replace(needs, data=needs.data | {Data.INSTANCES}, named=())
        return self._reader.read(uuids, request, whole, basis)


@pytest.fixture(scope='module')
def cloud(tmp_path_factory):
    directory = tmp_path_factory.mktemp('databases')
    databases = NovaDatabases(lambda name: f'sqlite:///{directory}/{name}')
    with closing(databases):
        for cell, hosts in CELLS.items():
            for host in hosts:
                databases.add_host(host, cell)
        yield databases


def _write(cloud, rows, flavors=()):
    """Write the instances on their hosts.

    :param rows: UUID to host, and True for a deleted row.
    """
    flavor_of = dict(zip(rows, flavors, strict=False))
    for cell, hosts in CELLS.items():
        with cloud.engines[cell].begin() as connection:
            connection.execute(sa.delete(tables.instances))
            for uuid, (host, deleted) in rows.items():
                if host in hosts or (host is None and cell == 'cell1'):
                    values = {'uuid': uuid, 'host': host, 'deleted': int(deleted)}
                    values['instance_type_id'] = flavor_of.get(uuid)
                    connection.execute(sa.insert(tables.instances).values(values))


def _request(wanted):
    group = None
    if wanted['policy']:
        hosts = frozenset(wanted['hosts'])
        members = wanted['members']
        group = a_group(wanted['policy'], members, rules=wanted['rules'], hosts=hosts)
    uuids = NEW[: wanted['count']]
    forced = {'force_hosts': ('h0',)} if wanted['forced'] else {}
    return a_request(
        instance_uuids=uuids,
        instance_uuid=uuids[0],
        hints=wanted['hints'],
        group=group,
        flavor=a_flavor(id=1),
        **forced,
    )


def _decided(hosts, wanted, pending, filters=FILTERS):
    """The chosen hosts in their order, or the refusal; and the rejections."""
    values = Settings(enabled_filters=filters)
    pending_claims = PendingClaims(values)
    host_snapshot = hosts.read(None, a_request()).hosts
    for uuid, host in pending.items():
        pending_claims.choose(
            host_snapshot[a_uuid(host)], a_request(instance_uuids=(uuid,)), None, {}
        )
    slots = CountingPlacement(dict.fromkeys(map(a_uuid, HOSTS), 9))
    filters = loading.filters(values)
    weighers = loading.weighers(values)
    parts = SchedulerDeps(values, [], slots, hosts, filters, weighers, pending_claims)

    with logged('nova.filters', logging.DEBUG) as log:
        decision = FilterScheduler(parts).decide(_request(wanted), seed=1)

    reasons = [(name, host.host, reason) for name, host, reason in rejections(log)]
    if decision.refusal is not None:
        return decision.refusal, reasons
    chosen = []
    for selections in decision.selections:
        chosen.append([selection.service_host for selection in selections])
    return chosen, reasons


def _without_new(rows, wanted):
    """The rows, without rows of the new instances of a multi-create."""
    if wanted['count'] == 1:
        return rows
    return {uuid: row for uuid, row in rows.items() if uuid not in NEW}


@settings(max_examples=60)
@given(rows=ROWS, wanted=REQUEST, pending=PENDING)
@example(
    rows={'n0': ('h0', False), 'i0': ('h0', False)},
    wanted={
        'policy': 'anti-affinity',
        'rules': {},
        'members': ['i0'],
        'hosts': [],
        'hints': {},
        'count': 1,
        'forced': False,
    },
    pending={},
)
def test_a_decision_from_named_instances_equals_a_full_reading(
    cloud, rows, wanted, pending
):
    """A scheduler that reads the named instances has the hosts, verdicts and reasons of
    a scheduler that reads all instances. The instances of a multi-create are new, and
    on no host."""
    _write(cloud, _without_new(rows, wanted))

    with closing(cloud.reader()) as reader:
        decided = _decided(reader, wanted, pending)
        assert decided == _decided(Whole(reader), wanted, pending)


@settings(max_examples=60)
@given(rows=ROWS, flavors=FLAVORS, wanted=REQUEST, pending=PENDING)
def test_type_affinity_needs_a_single_instance_of_each_flavor(
    cloud, rows, flavors, wanted, pending
):
    """TypeAffinityFilter decides as if all instances were read, beside filters that
    look for named instances."""
    _write(cloud, _without_new(rows, wanted), flavors)
    filters = ('TypeAffinityFilter', *FILTERS)

    with closing(cloud.reader()) as reader:
        decided = _decided(reader, wanted, pending, filters)
        assert decided == _decided(Whole(reader), wanted, pending, filters)
