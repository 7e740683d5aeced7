# SPDX-License-Identifier: Apache-2.0
"""A complete case through novasched, from the decoders to the verdict."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import json
import pkgutil
from dataclasses import replace
from datetime import datetime
from random import Random
from types import ModuleType, SimpleNamespace
from typing import Any

import msgspec
from oslo_config import cfg
from oslo_context.context import RequestContext

import novasched.filters
import novasched.weighers
from novasched import conf as configuration
from novasched.cells import rows
from novasched.errors import BadRequest, NoValidHost
from novasched.filters import CANDIDATES, Filter
from novasched.model.candidate import Candidate
from novasched.model.host import Aggregate, Host, Instance
from novasched.model.image_properties import from_system_metadata
from novasched.model.numa import TopologyLimits
from novasched.model.request import Request
from novasched.model.settings import Settings
from novasched.pipeline import Pipeline
from novasched.rpc import decode, versions
from novasched.rpc.serializer import Serializer
from novasched.weighers import Weigher
from tests.parity.descriptions import DATES, NOW, Case

ABSTRACT = ('AggregatesFilter', 'CandidateFilter', 'SharingFilter')
CONTEXT = RequestContext(user_id='user', project_id='project', overwrite=False)


def _classes(package: ModuleType, base: type) -> dict[str, Any]:
    """The plugins of a package, by name."""
    for module in pkgutil.iter_modules(package.__path__, f'{package.__name__}.'):
        importlib.import_module(module.name)
    found: dict[str, Any] = {}
    bases = [base]
    while bases:
        for each in bases.pop().__subclasses__():
            bases.append(each)
            if each.__module__.startswith(package.__name__) and each.__name__ not in ABSTRACT:
                found[each.__name__] = each
    return found


FILTERS = _classes(novasched.filters, Filter)
WEIGHERS = _classes(novasched.weighers, Weigher)


def judge(case: Case) -> Any:
    """For each host whether it passes, its limits and candidates; or an error, as nova's side."""
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
        hosts = [host_of(each, pipeline.settings) for each in case['hosts']]
        weighed = pipeline.for_request({})._weigh([each for each in hosts if each], request)
    except Exception as error:
        return error_of(error, 'verdict')
    return [[host.host, host.nodename, weight] for weight, host in weighed]


def _verdict(pipeline: Pipeline, description: Case, request: Request, case: Case) -> Any:
    try:
        host = host_of(description, pipeline.settings)
        if host is None:
            return {'passes': False, 'limits': {}, 'candidates': []}
        offered = {host.uuid: [_candidate(each) for each in description['candidates']]}
        line = pipeline.for_request({CANDIDATES: offered})
        passed = bool(line.rank([host], request, case['index'], Random(0)))
        limits = line.limits(host, request) if passed else {}
    except Exception as error:
        return error_of(error, 'verdict')
    return {
        'passes': passed,
        'limits': {name: _plain(value) for name, value in limits.items()},
        'candidates': [each.providers_by_group() for each in offered[host.uuid]],
    }


def _candidate(description: Case) -> Candidate:
    return Candidate({}, msgspec.Raw(msgspec.json.encode(description['mappings'])))


def _plain(limit: Any) -> Any:
    """A limit; that of NUMA cells as nova's side has it."""
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


def host_of(description: Case, settings: Settings) -> Host | None:
    """The host that the rows amount to."""
    row = _row(description['service'])
    service = rows.service(row, up=_is_heard_of(row, settings))
    aggregates = tuple(Aggregate(**each) for each in description['aggregates'])
    instances = {each['uuid']: _instance(each) for each in description['instances']}
    host = rows.host(_row(description['row']), description['cell_uuid'], service, settings)
    return host and replace(host, aggregates=aggregates, instances=instances)


def _is_heard_of(row: SimpleNamespace, settings: Settings) -> bool:
    """What ``cells/computes.py`` has the database find out."""
    heard = row.last_seen_up or row.created_at
    return bool(heard) and abs(NOW - heard).total_seconds() <= settings.service_down_time


def _instance(row: Case) -> Instance:
    return Instance(
        uuid=row['uuid'],
        project_id=row['project_id'],
        instance_type_id=row['instance_type_id'],
        image_properties=from_system_metadata(row['system_metadata']),
    )


def _row(columns: Case) -> SimpleNamespace:
    return SimpleNamespace(
        **{
            name: datetime.fromisoformat(value) if value and name in DATES else value
            for name, value in columns.items()
        }
    )


def _pipeline(case: Case) -> Pipeline:
    return _pipeline_of(json.dumps(case['config'], sort_keys=True), tuple(case['plugins']))


@functools.lru_cache(256)
def _pipeline_of(config: str, names: tuple[str, ...]) -> Pipeline:
    settings = _settings_of(config)
    filters = [FILTERS[name](settings) for name in names if name in FILTERS]
    weighers = [WEIGHERS[name](settings) for name in names if name in WEIGHERS]
    return Pipeline(settings, filters, weighers)


def settings_of(config: Case) -> Settings:
    """The settings that nova.conf with these values gives."""
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
        return configuration.settings(conf)
    finally:
        for option, _, group in values:
            conf.clear_override(option, group)


@functools.cache
def _conf() -> cfg.ConfigOpts:
    conf = cfg.ConfigOpts()
    configuration.register(conf)
    conf([], project='nova', default_config_files=[])
    return conf
