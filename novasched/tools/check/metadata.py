# SPDX-License-Identifier: Apache-2.0
"""Finds metadata of aggregates that prefilters match only because the API database
ignores case, accents or trailing blanks."""

from collections.abc import Collection, Iterator, Sequence
from contextlib import closing
from dataclasses import replace

import sqlalchemy as sa

from novasched.cells.aggregates import AggregateReader
from novasched.cells.database import Database
from novasched.cells.engines import connect
from novasched.conf.errors import NovaschedError
from novasched.conf.settings import Settings
from novasched.scheduler.model.aggregate_list import (
    TENANT_KEY,
    TRAIT_KEY,
    AggregateList,
)
from novasched.scheduler.model.host import Aggregate
from novasched.tools.check.aggregates import listed
from novasched.tools.check.findings import Finding, Level
from novasched.tools.check.options import NovaConf

METADATA = 'metadata'


def check_metadata(nova_conf: NovaConf) -> Iterator[Finding]:
    """Search the aggregates as the API database compares texts, and exactly; no finding
    if the results are equal."""
    conf = nova_conf.conf
    url = conf.api_database.connection or ''
    try:
        with closing(
            connect(conf.api_database, url, 'API database', patience=nova_conf.timeout)
        ) as api:
            aggregates = AggregateReader(api).all()
            projects: Sequence[str] = ()
            if nova_conf.settings.limit_tenants_to_placement_aggregate:
                projects = _projects(api, aggregates)
            matches = [*inexact_matches(aggregates, projects, nova_conf.settings)]
    except NovaschedError as error:
        # The checks of databases report the error itself.
        yield Finding(Level.NOTE, METADATA, f'not compared: {error}')
        return

    if matches:
        text = (
            f'{listed(matches)}: equal only in this database, which ignores case,'
            ' accents or blanks. Filters compare exactly: write the metadata alike'
        )
        yield Finding(Level.WARNING, METADATA, text)


def _projects(api: Database, aggregates: AggregateList) -> Sequence[str]:
    """The projects of instances for which the database may find a reserved aggregate.

    :raises DatabaseUnavailable: the API database does not answer.
    """
    reserved = set()
    for aggregate in aggregates:
        for key, value in aggregate.metadata.items():
            if key.startswith(TENANT_KEY):
                reserved.add(value)
    if not reserved:
        return []

    def read(connection: sa.Connection) -> Sequence[str]:
        projects = api.table('instance_mappings').c.project_id
        # The database compares, so that other spellings of a project are found, too.
        select = sa.select(projects).where(projects.in_(reserved)).distinct()
        return connection.execute(select).scalars().all()

    return api.read(read)


def inexact_matches(
    aggregates: AggregateList, projects: Collection[str], settings: Settings
) -> Iterator[str]:
    """Describe the metadata that an enabled prefilter matches although the texts
    differ.

    :param projects: the projects to search for.
    """
    # A part for each key shows which metadata of an aggregate matches.
    parts: list[Aggregate] = []
    for aggregate in aggregates:
        for key, value in aggregate.metadata.items():
            parts.append(replace(aggregate, id=len(parts), metadata={key: value}))
    loose = AggregateList(parts, aggregates.keys, aggregates.values)
    exact = AggregateList(parts)

    if settings.query_placement_for_availability_zone:
        for zone in _zones(loose, parts):
            differing = _without(loose.in_zone(zone), exact.in_zone(zone))
            yield from _described(differing, f'zone {zone}')

    if settings.limit_tenants_to_placement_aggregate:
        for project in projects:
            differing = _without(
                loose.reserved_for(project), exact.reserved_for(project)
            )
            yield from _described(differing, f'project {project}')

    if settings.enable_isolated_aggregate_filtering:
        for trait in _traits(loose):
            differing = _without(_requiring(loose, trait), _requiring(exact, trait))
            yield from _described(differing, f'required trait {trait}')


def _zones(loose: AggregateList, parts: Sequence[Aggregate]) -> Sequence[str]:
    """The names of all zones, in each spelling."""
    zones = set()
    for part in parts:
        for value in part.metadata.values():
            if part in loose.in_zone(value):
                zones.add(value)
    return sorted(zones)


def _traits(loose: AggregateList) -> Sequence[str]:
    """The names of the traits that isolate aggregates, in the only spelling that
    Placement allows."""
    traits = set()
    for part in loose.isolated_from(()):
        for key in part.metadata:
            traits.add(key[len(TRAIT_KEY) :].strip().upper())
    return sorted(traits)


def _requiring(parts: AggregateList, trait: str) -> Sequence[Aggregate]:
    """The parts that isolate an aggregate from requests without a trait."""
    return _without(parts.isolated_from(()), parts.isolated_from([trait]))


def _without(
    parts: Sequence[Aggregate], others: Sequence[Aggregate]
) -> Sequence[Aggregate]:
    excluded = {part.id for part in others}
    return [part for part in parts if part.id not in excluded]


def _described(parts: Sequence[Aggregate], meaning: str) -> Iterator[str]:
    for part in parts:
        for key, value in part.metadata.items():
            yield f"'{key}={value}' of {part.name} is {meaning}"
