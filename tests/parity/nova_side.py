# SPDX-License-Identifier: Apache-2.0
"""A child process with nova's own classes. The script runs in nova's virtualenv;
commands and answers are lines as in tests/lab/nova_child.py.

The environment may name a directory with virtualenvs of older releases: ``nova16``,
``nova17`` and so on. Filters of older releases are loaded into the running release, and
judge its hosts and requests.

A case is complete: it has rows as in the databases, and a RequestSpec as sent over RPC.
An answer is a value, or {"error": class, "text": ..., "at": request | hosts | verdict}.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import inspect
import logging
import os
import sys
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any
from unittest import mock

from nova import context, objects
from nova.conf import CONF
from nova.objects import base, compute_node
from nova.scheduler import filters, host_manager, weights
from oslo_config import cfg
from oslo_utils import timeutils

Case = dict[str, Any]

REMOVED_OPTIONS = {
    'scheduler': [cfg.BoolOpt('query_placement_for_availability_zone', default=True)],
}
"""Options of older releases' filters that the running release does not declare."""

OLDER_VARIABLE = 'NOVASCHED_OLDER_NOVAS'
COMPANIONS = ('nova.i18n', 'nova.scheduler.filters.utils')
"""Modules that an older filter gets from its own release."""


class Stage(Exception):
    """An exception of nova's, with its origin."""


class Judge(host_manager.HostManager):
    """nova's host manager without databases: filters and weighers by name."""

    def __init__(self, filter_classes: list[type], weigher_classes: list[type]) -> None:
        self.filter_handler = filters.HostFilterHandler()
        self.enabled_filters = [class_() for class_ in filter_classes]
        self.weight_handler = weights.HostWeightHandler()
        self.weighers = [class_() for class_ in weigher_classes]


class Config:
    def __init__(self) -> None:
        self._now: Case = {}

    def applied(self, config: Case) -> bool:
        """Apply a configuration; True if an option has changed."""
        if config == self._now:
            return False
        CONF.clear_override('service_down_time')  # servicegroup overrides it by itself
        for option, _, group in self._options(self._now):
            CONF.clear_override(option, group)
        self._now = config
        for option, value, group in self._options(config):
            CONF.set_override(option, value, group)
        return True

    def _options(self, config: Case) -> list[tuple[str, Any, str | None]]:
        values = []
        for group, options in config.items():
            for option, value in options.items():
                values.append((option, value, None if group == 'DEFAULT' else group))
        return values


class Answers:
    """Commands that take a case and return a JSON value."""

    def __init__(self) -> None:
        logging.disable(logging.CRITICAL)

    def answers(self, now: str, do: str, cases: list[Case]) -> list[Any]:
        """The answers of a command to cases, at a fixed time."""
        timeutils.set_time_override(datetime.fromisoformat(now))
        return [self._answer(do, case) for case in cases]

    def _answer(self, command: str, case: Case) -> Any:
        try:
            return getattr(self, command)(case)
        except Stage as error:
            return error.args[0]


class NovaSide(Answers):
    def __init__(self) -> None:
        super().__init__()
        # The oldest first: the newest that has a filter wins.
        folder = Path(os.environ.get(OLDER_VARIABLE) or os.devnull)
        self._older = sorted(folder.glob('nova[12][0-9]/lib/python*/site-packages'))
        classes = list(filters.all_filters())
        for path in self._older:
            classes += _older_filters(path)
        self.filters = {class_.__name__: class_ for class_ in classes}
        self.weighers = {class_.__name__: class_ for class_ in weights.all_weighers()}
        self._judges: dict[str, Judge] = {}
        self._config = Config()
        _without_databases()
        for group, options in REMOVED_OPTIONS.items():
            CONF.register_opts(options, group)

    def about(self, _case: Case) -> Case:
        return {
            'filters': sorted(self.filters),
            'weighers': sorted(self.weighers),
            'older': len(self._older),
        }

    def judge(self, case: Case) -> list[Any]:
        """The verdict on every host, with the limits and the remaining candidates, or
        an error."""
        judge = self._judge(case)
        with stage('request'):
            request = request_of(case)
        return [_verdict(judge, host, request, case) for host in case['hosts']]

    def weigh(self, case: Case) -> list[Any]:
        """The hosts in order of weight, the best first: name, node and weight."""
        judge = self._judge(case)
        with stage('request'):
            request = request_of(case)
        with stage('hosts'):
            hosts = [_host(description) for description in case['hosts']]
        with stage('verdict'):
            weighed = judge.get_weighed_hosts(hosts, request)
        return [[host.obj.host, host.obj.nodename, host.weight] for host in weighed]

    def _judge(self, case: Case) -> Judge:
        """The named plugins. A change of the configuration needs new plugins."""
        if self._config.applied(case['config']):
            self._judges.clear()
        names = case['plugins']
        key = ','.join(names)
        if key not in self._judges:
            self._judges[key] = Judge(
                [self.filters[name] for name in names if name in self.filters],
                [self.weighers[name] for name in names if name in self.weighers],
            )
        return self._judges[key]


@functools.cache
def user() -> context.RequestContext:
    return context.RequestContext('user', 'project')


def request_of(case: Case) -> objects.RequestSpec:
    return base.NovaObjectSerializer().deserialize_entity(user(), case['request'])


def _verdict(judge: Judge, host: Case, request: objects.RequestSpec, case: Case) -> Any:
    try:
        with stage('hosts'):
            state = _host(host)
        with stage('verdict'):
            passed = list(judge.get_filtered_hosts([state], request, case['index']))
    except Stage as error:
        return error.args[0]
    return {
        'passes': bool(passed),
        'limits': {name: _plain(value) for name, value in state.limits.items()},
        'candidates': [each['mappings'] for each in state.allocation_candidates],
    }


def _plain(limit: Any) -> Any:
    if not isinstance(limit, objects.NUMATopologyLimits):
        return limit
    networks = limit.network_metadata if 'network_metadata' in limit else None
    return {
        'cpu_allocation_ratio': limit.cpu_allocation_ratio,
        'ram_allocation_ratio': limit.ram_allocation_ratio,
        'physnets': sorted(networks.physnets) if networks else [],
        'tunneled': networks.tunneled if networks else False,
    }


def _host(description: Case) -> host_manager.HostState:
    row = dated(description['row'])
    service = dated(description['service'])
    compute = objects.ComputeNode._from_db_object(user(), objects.ComputeNode(), row)
    service_object = objects.Service._from_db_object(user(), objects.Service(), service)
    state = host_manager.HostState(
        compute.host, compute.hypervisor_hostname, description['cell_uuid']
    )
    aggregates = []
    for fields in description['aggregates']:
        aggregates.append(objects.Aggregate(hosts=[compute.host], **fields))
    instances = {}
    for fields in description['instances']:
        instance = objects.Instance(user(), image_ref=None, **fields)
        instances[fields['uuid']] = instance

    state.update(compute, dict(service_object), aggregates, instances)
    state.allocation_candidates = description['candidates']
    return state


def dated(row: Case) -> Case:
    decoded = dict(row)
    for name, value in row.items():
        if value and name.endswith(('_at', '_up')):
            decoded[name] = datetime.fromisoformat(value)
    return decoded


@contextlib.contextmanager
def stage(name: str) -> Iterator[None]:
    """Add the origin to an exception."""
    try:
        yield
    except Exception as error:
        answer = {'error': type(error).__name__, 'text': str(error), 'at': name}
        raise Stage(answer) from error


def _older_filters(site_packages: Path) -> list[type]:
    """The filters of an older release that the running release does not have."""
    current = {class_.__name__ for class_ in filters.all_filters()}
    older: list[type] = []
    release = site_packages.parent.parent.parent.name
    folder = site_packages / 'nova/scheduler/filters'
    with contextlib.ExitStack() as stack:
        for name in COMPANIONS:
            path = (site_packages / name.replace('.', '/')).with_suffix('.py')
            module = _load(path, f'older_{path.stem}')
            stack.enter_context(mock.patch.dict(sys.modules, {name: module}))
            stack.enter_context(mock.patch(name, module))
        for path in sorted(folder.glob('*_filter.py')):
            with contextlib.suppress(ImportError):
                module = _load(path, f'{release}_{path.stem}')
                for name, class_ in inspect.getmembers(module, inspect.isclass):
                    if not issubclass(class_, filters.BaseHostFilter):
                        continue
                    if class_.__module__ != module.__name__ or name in current:
                        continue
                    if not name.startswith(('_', 'Base')):
                        older.append(class_)
    return older


def _load(path: Path, name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _without_databases() -> None:
    """Keep nova from databases: a case has all rows that filters and weighers read."""
    # nova migrates rows when it reads them.
    compute_node.db.compute_node_update = lambda *_: None
    objects.CellMapping.get_by_uuid = lambda _context, uuid: objects.CellMapping(
        uuid=uuid
    )
    context.target_cell = lambda given, _mapping: contextlib.nullcontext(given)


if __name__ == '__main__':
    from nova_child import (
        serve,
    )  # of tests/lab, where the parent process lets it be found

    serve(NovaSide)
