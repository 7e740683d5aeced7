# SPDX-License-Identifier: Apache-2.0
"""The methods, called as the dispatcher calls them."""

from __future__ import annotations

import logging
from typing import Any

import oslo_messaging
import pytest

from novasched.errors import BadRequest
from novasched.model.request import Request
from novasched.model.selection import Selection
from novasched.objects import Instance
from novasched.rpc.endpoint import BaseEndpoint, Indifferent, SchedulerEndpoint
from tests.unit.rpc.wire import CASTS, CONTEXT, FLAVOR, decoded, primitive


class Nobody:
    """A driver that is not asked."""

    def select_destinations(self, request: Request) -> list[list[Selection]]:
        raise AssertionError


class Notebook:
    """An observer that writes down what it hears, objects by their names."""

    def __init__(self) -> None:
        self.heard: list[tuple[Any, ...]] = []

    def update_aggregates(self, aggregates: Any) -> None:
        self.heard.append(('aggregates', [each.value('id') for each in aggregates]))

    def delete_aggregate(self, aggregate: Any) -> None:
        self.heard.append(('no aggregate', aggregate.value('id')))

    def update_instance_info(self, host: str, instances: Any) -> None:
        self.heard.append(('instances', host, [each.value('uuid') for each in instances]))

    def delete_instance_info(self, host: str, instance_uuid: str) -> None:
        self.heard.append(('no instance', host, instance_uuid))

    def sync_instance_info(self, host: str, instance_uuids: Any) -> None:
        self.heard.append(('all instances', host, list(instance_uuids)))

    def ignored(self) -> tuple[str, ...]:
        return ()


HERE = 'e2e-cmp1'
ANY = object()
ONE = primitive('Aggregate', '1.3', id=7, hosts=[])
SERVER = primitive('Instance', '2.8', uuid='u')


def several(name: str, version: str, *each: Any) -> dict[str, Any]:
    """A list object as it travels."""
    return primitive(name, version, objects=list(each))


@pytest.mark.parametrize(
    ('method', 'sent', 'heard'),
    [
        ('update_aggregates', {'aggregates': ONE}, ('aggregates', [7])),
        ('update_aggregates', {'aggregates': [ONE, ONE]}, ('aggregates', [7, 7])),
        ('update_aggregates', {'aggregates': several('AggregateList', '1.3', ONE)}, ('aggregates', [7])),
        ('delete_aggregate', {'aggregate': ONE}, ('no aggregate', 7)),
        ('update_instance_info', {'host_name': 'h', 'instance_info': SERVER}, ('instances', 'h', ['u'])),
        ('update_instance_info', {'host_name': 'h', 'instance_info': several('InstanceList', '2.6', SERVER)}, ('instances', 'h', ['u'])),
        ('update_instance_info', {'host_name': 'h', 'instance_info': several('InstanceList', '2.0')}, ('instances', 'h', [])),
        ('delete_instance_info', {'host_name': 'h', 'instance_uuid': 'u'}, ('no instance', 'h', 'u')),
        ('sync_instance_info', {'host_name': 'h', 'instance_uuids': ['u']}, ('all instances', 'h', ['u'])),
    ],
)  # fmt: skip
def test_casts(method: str, sent: dict[str, Any], heard: tuple[Any, ...]) -> None:
    """The observer hears of each cast, with as many objects as were sent."""
    notebook = Notebook()
    getattr(SchedulerEndpoint(Nobody(), notebook), method)(CONTEXT, **decoded(sent))
    assert notebook.heard == [heard]


@pytest.mark.parametrize('method', CASTS)
def test_recorded_casts(method: str, caplog: pytest.LogCaptureFixture) -> None:
    """A scheduler that needs no announcements takes each, and says so at debug."""
    with caplog.at_level(logging.DEBUG, logger='nova.scheduler.manager'):
        getattr(SchedulerEndpoint(Nobody()), method)(CONTEXT, **decoded(CASTS[method]['args']))
    assert [record.levelname for record in caplog.records] == ['DEBUG']


@pytest.mark.parametrize(('level', 'ignored'), [('DEBUG', set()), ('INFO', set(CASTS))])
def test_what_is_not_decoded(
    level: str, ignored: set[str], caplog: pytest.LogCaptureFixture
) -> None:
    """A scheduler that needs no announcements spares itself those that it does not log."""
    with caplog.at_level(level, logger='nova.scheduler.manager'):
        assert set(Indifferent().ignored()) == ignored


@pytest.mark.parametrize(
    ('method', 'sent', 'why'),
    [
        ('update_aggregates', {'aggregates': [3]}, 'an object Aggregate is wanted, not int'),
        ('update_aggregates', {'aggregates': FLAVOR}, 'an object Aggregate is wanted, not Flavor'),
        ('update_aggregates', {}, 'update_aggregates lacks aggregates'),
        ('update_instance_info', {'host_name': 'h', 'instance_info': None}, 'an object Instance is wanted, not NoneType'),
        ('sync_instance_info', {'host': 'h'}, 'sync_instance_info does not take host'),
    ],
)  # fmt: skip
def test_casts_refused(method: str, sent: dict[str, Any], why: str) -> None:
    """A cast that cannot be understood is refused, and the observer not told."""
    notebook = Notebook()
    with pytest.raises(oslo_messaging.ExpectedException) as caught:
        getattr(SchedulerEndpoint(Nobody(), notebook), method)(CONTEXT, **decoded(sent))
    assert isinstance(caught.value.exc_info[1], BadRequest)
    assert str(caught.value.exc_info[1]) == why
    assert not notebook.heard


def test_an_argument_may_be_named_context() -> None:
    """A message cannot clash with the arguments that the dispatcher gives."""
    with pytest.raises(oslo_messaging.ExpectedException):
        SchedulerEndpoint(Nobody()).select_destinations(CONTEXT, context=1, self=2)


def test_instances_keep_no_secrets() -> None:
    """What an observer gets of a server lacks its user data and its keys."""
    (servers,) = CASTS['update_instance_info']['args']['instance_info']['nova_object.data'].values()
    assert {'user_data', 'key_data'} <= servers[0]['nova_object.data'].keys()
    assert not {'user_data', 'key_data'} & Instance.fields.keys()


def test_base() -> None:
    """Every nova service answers who it is."""
    endpoint = BaseEndpoint()
    assert endpoint.ping(CONTEXT, arg='x') == {'service': 'scheduler', 'arg': 'x'}
    assert endpoint.get_backdoor_port(CONTEXT) is None  # type: ignore[func-returns-value]
