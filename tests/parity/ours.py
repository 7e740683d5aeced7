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
from novasched.scheduler.model.candidate import Candidate, CandidateIndex
from novasched.scheduler.model.flavor import NO_PROPERTIES, Flavor
from novasched.scheduler.model.host import Aggregate, Host, Instance
from novasched.scheduler.model.image_properties import from_system_metadata
from novasched.scheduler.model.numa import TopologyLimits
from novasched.scheduler.model.request import Request
from novasched.scheduler.pipeline import Pipeline
from novasched.scheduler.plugin import Data
from novasched.scheduler.requirements import numa
from novasched.scheduler.weights import weigh as weigh_hosts
from tests.lab.descriptions import DATES, NOW, Case

CONTEXT = RequestContext(user_id='user', project_id='project', overwrite=False)
SCALARS = ('id', 'memory', 'pagesize', 'cpu_policy', 'cpu_thread_policy')
"""Fields of a guest cell, besides the sets of CPUs."""


def _plugins(kind: str) -> dict[str, Any]:
    points = entry_points(group=f'novasched.{kind}')
    return {point.name: point.load() for point in points}


FILTERS = _plugins('filters')
WEIGHERS = _plugins('weighers')


def judge(case: Case) -> Any:
    """For every host its verdict, limits and candidates, or an error, in the form of
    nova's side."""
    try:
        pipeline = _pipeline(case)
        request = request_of(case)
    except Exception as error:
        return error_of(error, 'request')
    return [_verdict(pipeline, host, request, case) for host in case['hosts']]


def weigh(case: Case) -> Any:
    """The hosts in order of weight, the best first: name, node and weight."""
    try:
        pipeline = _pipeline(case)
        request = request_of(case)
        for_request = pipeline.for_request()
        described = [host_of(host, pipeline.settings) for host in case['hosts']]
        hosts = [_as_read(host, for_request, request) for host in described if host]
        sums = weigh_hosts(for_request.weighers, hosts, request).sums.tolist()
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
        candidates = [_candidate(candidate) for candidate in description['candidates']]
        for_request = pipeline.for_request()
        host = _as_read(host, for_request, request)
        offered = CandidateIndex().narrowed({host.uuid: candidates})
        ranking = for_request.filter([host], request, case['index'], offered)
        passed = bool(ranking.hosts)
        remaining = ranking.candidates or {}
        limits = for_request.limits(host, request) if passed else {}
    except Exception as error:
        return error_of(error, 'verdict')

    providers = [c.providers_by_group() for c in remaining[host.uuid]]
    return {
        'passes': passed,
        'limits': {name: _plain(value) for name, value in limits.items()},
        'candidates': providers,
    }


def _as_read(host: Host, line: Pipeline, request: Request) -> Host:
    """The host with the instances that the pipeline needs."""
    needs = line.needs(request)
    if {Data.INSTANCES, Data.FLAVORS} & needs.data:
        return host
    instances = {}
    for uuid, instance in host.instances.items():
        if uuid in needs.named:
            instances[uuid] = instance
    return replace(host, instances=instances)


def _candidate(description: Case) -> Candidate:
    return Candidate({}, msgspec.Raw(msgspec.json.encode(description['mappings'])))


def _plain(limit: Any) -> Any:
    if not isinstance(limit, TopologyLimits):
        return limit
    return {**dataclasses.asdict(limit), 'physnets': sorted(limit.physnets or ())}


def error_of(error: Exception, stage: str) -> dict[str, str]:
    """An error in the form of nova's side. BadRequest and NoValidHost count as errors
    of the request."""
    at = 'request' if isinstance(error, BadRequest | NoValidHost) else stage
    return {'error': type(error).__name__, 'text': str(error), 'at': at}


def request_of(case: Case) -> Request:
    """The request of a call with the case's RequestSpec.

    :raises BadRequest: the RequestSpec cannot be read.
    """
    spec = Serializer().deserialize_entity(CONTEXT, case['request'])
    call = versions.read({'spec_obj': spec, 'return_objects': True})
    return decode.request(call, CONTEXT)


def guest_of(
    flavor: Case, image: Mapping[str, Any] = NO_PROPERTIES
) -> Case | str | None:
    """The NUMA cells of a flavor and of image properties; a text with the reason if
    there is no valid topology."""
    sizes = {name: flavor[name] for name in ('vcpus', 'memory_mb', 'extra_specs')}
    try:
        topology = numa.topology(Flavor(**sizes), image)
    except (BadRequest, NoValidHost) as error:
        return str(error)
    if not topology:
        return topology

    cells = []
    for cell in topology.cells:
        fields = {name: getattr(cell, name) for name in SCALARS}
        fields['cpuset'] = sorted(cell.cpuset)
        fields['pcpuset'] = sorted(cell.pcpuset)
        cells.append(fields)
    return {
        'emulator_threads_policy': topology.emulator_threads_policy,
        'cells': cells,
    }


def host_of(description: Case, settings: Settings) -> Host | None:
    row = _row(description['service'])
    service = rows.service(row, up=_is_heard_of(row, settings))
    aggregates = tuple(Aggregate(**row) for row in description['aggregates'])
    instances = {}
    for instance_row in description['instances']:
        instances[instance_row['uuid']] = _instance(instance_row)
    host = rows.host(
        _row(description['row']), description['cell_uuid'], service, settings
    )
    return host and replace(host, aggregates=aggregates, instances=instances)


def _is_heard_of(row: SimpleNamespace, settings: Settings) -> bool:
    """True if the service is up by the rule of ``cells/servicegroup.py``."""
    heard = row.last_seen_up or row.created_at
    if not heard:
        return False
    return abs(NOW - heard).total_seconds() <= settings.service_down_time


def _instance(row: Case) -> Instance:
    return Instance(
        uuid=row['uuid'],
        project_id=row['project_id'],
        instance_type_id=row['instance_type_id'],
        image_properties=from_system_metadata(row['system_metadata']),
    )


def _row(columns: Case) -> SimpleNamespace:
    dates = {}
    for name in DATES:
        if columns.get(name):
            dates[name] = datetime.fromisoformat(columns[name])
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
    overrides = []
    for group, options in json.loads(config).items():
        for option, value in options.items():
            overrides.append((option, value, None if group == 'DEFAULT' else group))

    for option, value, group in overrides:
        conf.set_override(option, value, group)
    try:
        return loading.settings(conf)
    finally:
        for option, _, group in overrides:
            conf.clear_override(option, group)


@functools.cache
def _conf() -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    loading.register(conf)
    conf([], project='nova', default_config_files=[])
    return conf
