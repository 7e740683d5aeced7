# SPDX-License-Identifier: Apache-2.0
"""A complete case through novasched, from the decoders to the verdict."""

import dataclasses
import functools
import json
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from importlib.metadata import entry_points
from types import SimpleNamespace
from typing import Any

import msgspec
from oslo_config import cfg
from oslo_context.context import RequestContext

from novasched.cells import rows
from novasched.conf import loading
from novasched.conf.settings import Settings
from novasched.rpc import decode, versions
from novasched.rpc.server import Serializer
from novasched.scheduler.errors import BadRequest, NoValidHost
from novasched.scheduler.model.candidate import Candidate, CandidateIndex, Candidates
from novasched.scheduler.model.flavor import NO_PROPERTIES, Flavor
from novasched.scheduler.model.host import Aggregate, Host, Instance
from novasched.scheduler.model.image_properties import from_system_metadata
from novasched.scheduler.model.numa import TopologyLimits
from novasched.scheduler.model.request import Request
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.requirements import numa
from novasched.scheduler.weights import weigh as weigh_hosts
from tests.lab.descriptions import DATES, NOW, Case

CONTEXT = RequestContext(user_id='user', project_id='project', overwrite=False)
SCALARS = ('id', 'memory', 'pagesize', 'cpu_policy', 'cpu_thread_policy')
"""Of a guest cell, beside its CPUs."""


def _plugins(kind: str) -> dict[str, Any]:
    return {each.name: each.load() for each in entry_points(group=f'novasched.{kind}')}


FILTERS = _plugins('filters')
WEIGHERS = _plugins('weighers')


def judge(case: Case) -> Any:
    """For each host whether it passes, its limits and candidates; or an error, as
    nova's side."""
    try:
        pipeline = _pipeline(case)
        request = request_of(case)
    except Exception as error:
        return error_of(error, 'request')
    return [_verdict(pipeline, each, request, case) for each in case['hosts']]


def weigh(case: Case) -> Any:
    """The hosts, best first: name, node and weight."""
    try:
        pipeline = _pipeline(case)
        request = request_of(case)
        described = [host_of(each, pipeline.settings) for each in case['hosts']]
        line = pipeline.for_request()
        hosts = [_as_read(each, line, request) for each in described if each]
        sums = weigh_hosts(line.weighers, hosts, request).sums.tolist()
    except Exception as error:
        return error_of(error, 'verdict')
    order = sorted(range(len(hosts)), key=sums.__getitem__, reverse=True)
    return [[hosts[i].host, hosts[i].nodename, sums[i]] for i in order]


def _verdict(
    pipeline: Pipeline, description: Case, request: Request, case: Case
) -> Any:
    try:
        host = host_of(description, pipeline.settings)
        if host is None:
            return {'passes': False, 'limits': {}, 'candidates': []}
        candidates = list(map(_candidate, description['candidates']))
        offered: Candidates = CandidateIndex().narrowed({host.uuid: candidates})
        line = pipeline.for_request()
        host = _as_read(host, line, request)
        ranking = line.filter([host], request, case['index'], offered)
        passed = bool(ranking.hosts)
        offered = ranking.candidates or CandidateIndex()
        limits = line.limits(host, request) if passed else {}
    except Exception as error:
        return error_of(error, 'verdict')
    return {
        'passes': passed,
        'limits': {name: _plain(value) for name, value in limits.items()},
        'candidates': [each.providers_by_group() for each in offered[host.uuid]],
    }


def _as_read(host: Host, line: Pipeline, request: Request) -> Host:
    """The host as the pipeline has it read: with the instances that it says it
    needs."""
    needs = line.needed_instances(request)
    if needs.instances or needs.flavors:
        return host
    instances = {
        uuid: instance
        for uuid, instance in host.instances.items()
        if uuid in needs.named
    }
    return replace(host, instances=instances)


def _candidate(description: Case) -> Candidate:
    return Candidate({}, msgspec.Raw(msgspec.json.encode(description['mappings'])))


def _plain(limit: Any) -> Any:
    if not isinstance(limit, TopologyLimits):
        return limit
    return {**dataclasses.asdict(limit), 'physnets': sorted(limit.physnets or ())}


def error_of(error: Exception, stage: str) -> dict[str, str]:
    """An error as nova's side says it; what refuses a request is said to lie in it."""
    at = 'request' if isinstance(error, BadRequest | NoValidHost) else stage
    return {'error': type(error).__name__, 'text': str(error), 'at': at}


def request_of(case: Case) -> Request:
    """The request that a call with the case's RequestSpec makes.

    :raises BadRequest: it cannot be read.
    """
    spec = Serializer().deserialize_entity(CONTEXT, case['request'])
    call = versions.read({'spec_obj': spec, 'return_objects': True})
    return decode.request(call, CONTEXT)


def guest_of(
    flavor: Case, image: Mapping[str, Any] = NO_PROPERTIES
) -> Case | str | None:
    """The NUMA cells that a flavor and the properties of an image ask for; a text says
    why they cannot be had."""
    sizes = {name: flavor[name] for name in ('vcpus', 'memory_mb', 'extra_specs')}
    try:
        found = numa.topology(Flavor(**sizes), image)
    except (BadRequest, NoValidHost) as error:
        return str(error)
    return found and {
        'emulator_threads_policy': found.emulator_threads_policy,
        'cells': [
            {
                **{name: sorted(getattr(cell, name)) for name in ('cpuset', 'pcpuset')},
                **{name: getattr(cell, name) for name in SCALARS},
            }
            for cell in found.cells
        ],
    }


def host_of(description: Case, settings: Settings) -> Host | None:
    row = _row(description['service'])
    service = rows.service(row, up=_is_heard_of(row, settings))
    aggregates = tuple(Aggregate(**each) for each in description['aggregates'])
    instances = {each['uuid']: _instance(each) for each in description['instances']}
    host = rows.host(
        _row(description['row']), description['cell_uuid'], service, settings
    )
    return host and replace(host, aggregates=aggregates, instances=instances)


def _is_heard_of(row: SimpleNamespace, settings: Settings) -> bool:
    """What ``cells/servicegroup.py`` has the database find out."""
    heard = row.last_seen_up or row.created_at
    return (
        bool(heard) and abs(NOW - heard).total_seconds() <= settings.service_down_time
    )


def _instance(row: Case) -> Instance:
    return Instance(
        uuid=row['uuid'],
        project_id=row['project_id'],
        instance_type_id=row['instance_type_id'],
        image_properties=from_system_metadata(row['system_metadata']),
    )


def _row(columns: Case) -> SimpleNamespace:
    dates = {
        name: datetime.fromisoformat(columns[name])
        for name in DATES
        if columns.get(name)
    }
    return SimpleNamespace(**{**columns, **dates})


def _pipeline(case: Case) -> Pipeline:
    return _pipeline_of(
        json.dumps(case['config'], sort_keys=True), tuple(case['plugins'])
    )


@functools.lru_cache(256)
def _pipeline_of(config: str, names: tuple[str, ...]) -> Pipeline:
    settings = _settings_of(config)
    filters = [FILTERS[name](settings) for name in names if name in FILTERS]
    weighers = [WEIGHERS[name](settings) for name in names if name in WEIGHERS]
    return Pipeline(settings, filters, weighers)


def settings_of(config: Case) -> Settings:
    return _settings_of(json.dumps(config, sort_keys=True))


@functools.lru_cache(256)
def _settings_of(config: str) -> Settings:
    conf = _conf()
    values = [
        (option, value, None if group == 'DEFAULT' else group)
        for group, options in json.loads(config).items()
        for option, value in options.items()
    ]
    for option, value, group in values:
        conf.set_override(option, value, group)
    try:
        return loading.settings(conf)
    finally:
        for option, _, group in values:
            conf.clear_override(option, group)


@functools.cache
def _conf() -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    loading.register(conf)
    conf([], project='nova', default_config_files=[])
    return conf
