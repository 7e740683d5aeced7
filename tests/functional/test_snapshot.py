# SPDX-License-Identifier: Apache-2.0
"""Hosts read from a real MariaDB, where digests say what has changed."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import sqlalchemy as sa
from hypothesis import example, given, settings

from novasched.tools.sandbox import databases as tables
from tests.lab import servers
from tests.lab.builders import a_request, a_uuid
from tests.lab.nova_databases import NovaDatabases
from tests.lab.snapshot_story import EXAMPLE, HOSTS, STORY, Story

READERS, WRITES = 6, 150
INSTANCES = 700  # on each host


@pytest.fixture(scope='module')
def databases(mariadb: servers.Server) -> Iterator[NovaDatabases]:
    """nova's tables on the database server."""
    prefix = f'novasched_{secrets.token_hex(4)}'
    made: list[str] = []

    def create(name: str) -> str:
        made.append(f'{prefix}_{name}')
        return servers.create_database(mariadb.url, made[-1])

    rows = NovaDatabases(create)
    try:
        yield rows
    finally:
        rows.close()
        for name in made:
            servers.drop_database(mariadb.url, name)


@given(steps=STORY)
@example(steps=EXAMPLE)
@settings(max_examples=200, deadline=None)
def test_every_change_is_seen_by_the_next_request(databases: NovaDatabases, steps: list) -> None:
    """Equal seconds, clocks that differ, deletions, moves, restored backups, neighbours that
    change alike: what a request sees is what a full read sees that is made for it."""
    story = Story(databases)
    story.tell(steps)
    story.close()


def test_nobody_sees_hosts_from_before_their_arrival(databases: NovaDatabases) -> None:
    """While hosts are written and read at once, each request sees at least what was
    committed when it came."""
    story = Story(databases)
    engine = databases.engines['cell1']
    node = tables.compute_nodes
    written = [0]

    def write() -> None:
        for value in range(1, WRITES + 1):
            with engine.begin() as connection:
                connection.execute(
                    sa.update(node).where(node.c.host == HOSTS[0]).values(free_ram_mb=value)
                )
            written[0] = value

    def ask() -> list[tuple[int, int]]:
        seen = []
        while written[0] < WRITES:
            least = written[0]
            hosts = story.reader.read(None, a_request(), instances=False).hosts
            seen.append((least, hosts[a_uuid(HOSTS[0])].free_ram_mb))
        return seen

    written[0] = 0
    with engine.begin() as connection:
        connection.execute(sa.update(node).values(free_ram_mb=0))
    with ThreadPoolExecutor(READERS + 1) as pool:
        asked = [pool.submit(ask) for _ in range(READERS)]
        pool.submit(write).result()
        seen = [pair for each in asked for pair in each.result()]
    story.close()
    assert len(seen) > READERS
    assert [(least, saw) for least, saw in seen if saw < least] == []


def statements(story: Story, work: Callable[[], object]) -> list[str]:
    """The queries of tables that some work makes."""
    with story.databases.watched() as asked:
        work()
    return [each for each, _ in asked if each.startswith('SELECT') and 'FROM' in each]


@pytest.mark.parametrize('hosts', [10, 300])
def test_queries_do_not_grow_with_hosts(databases: NovaDatabases, hosts: int) -> None:
    """A request on a cloud in which nothing changes costs the same few queries, however
    many hosts there are."""
    story = Story(databases)
    for number in range(hosts):
        databases.add_host(f'more{number}', ('cell1', 'cell2')[number % 2])
    story.read()
    asked = statements(story, lambda: story.reader.read(None, a_request(), instances=False))
    story.close()
    # Of aggregates three, and of each cell three: nodes, services, those that are silent.
    assert len(asked) == 3 + 2 * 3


def test_a_new_cell_is_read_before_a_request_needs_it(databases: NovaDatabases) -> None:
    """A cell that comes with a renewal costs the next request what any other cell does."""
    story = Story(databases)
    mapping = tables.cell_mappings

    def disable(value: bool) -> None:
        with databases.api.begin() as connection:
            connection.execute(
                sa.update(mapping).where(mapping.c.name == 'cell2').values(disabled=value)
            )
        story.reader.renew()

    disable(True)
    few = story.reader.read(None, a_request(), instances=False).hosts
    disable(False)
    asked = statements(story, lambda: story.reader.read(None, a_request(), instances=False))
    story.read()
    story.close()
    assert len(few) < len(HOSTS)
    assert len(asked) == 3 + 2 * 3


@pytest.fixture
def crowded(databases: NovaDatabases) -> Iterator[Story]:
    """A reader of hosts that have so many instances each, all of the same image."""
    story = Story(databases)
    kept = tables.instance_system_metadata
    for name, cell in story.where.items():
        uuids = [f'{name}-{number}' for number in range(INSTANCES)]
        with databases.engines[cell].begin() as connection:
            rows = [{'uuid': uuid, 'host': name, 'deleted': 0} for uuid in uuids]
            connection.execute(sa.insert(tables.instances), rows)
            image = {'key': 'image_hw_pmu', 'value': '1', 'deleted': 0}
            metadata = [{**image, 'instance_uuid': uuid} for uuid in uuids]
            connection.execute(sa.insert(kept), metadata)
    yield story
    story.close()
    for engine in databases.engines.values():
        with engine.begin() as connection:
            connection.execute(sa.delete(tables.instances))
            connection.execute(sa.delete(kept))


def test_instances_that_a_request_names_cost_a_query_in_each_cell(crowded: Story) -> None:
    """However many there are, those are found on their hosts."""
    named = [f'{HOSTS[0]}-7', f'{HOSTS[1]}-0', 'nobody']

    def read() -> None:
        hosts = crowded.reader.read(None, a_request(), instances=False, named=named).hosts
        found = {host.host: set(host.instances) for host in hosts.values() if host.instances}
        assert found == {HOSTS[0]: {named[0]}, HOSTS[1]: {named[1]}}

    crowded.read()
    read()  # looks up the table
    asked = statements(crowded, read)
    assert len(asked) == 3 + 2 * (3 + 1)
    assert sum('FROM instances' in each for each in asked) == 2


@pytest.mark.parametrize('images', [False, True])
def test_all_instances_are_read_in_portions(crowded: Story, images: bool) -> None:
    """Nothing gets lost between them; instances of the same image share its properties."""
    hosts = crowded.reader.read(None, a_request(), instances=True, images=images).hosts
    for host in hosts.values():
        assert host.instances.keys() == {f'{host.host}-{i}' for i in range(INSTANCES)}
        properties = [each.image_properties for each in host.instances.values()]
        assert properties[0] == ({'hw_pmu': True} if images else {})
        assert all(each is properties[0] for each in properties)
