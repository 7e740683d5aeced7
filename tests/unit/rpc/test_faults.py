# SPDX-License-Identifier: Apache-2.0
"""The fault for the caller of a failed request, through the real dispatcher."""

import gc
import inspect
import json
import logging
import weakref
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import oslo_messaging
import pytest
from oslo_messaging._drivers.common import serialize_remote_exception

from novasched.conf.errors import ConfigError, NovaschedError
from novasched.placement.api import OutcomeUnknown
from novasched.rpc import faults
from novasched.rpc.heartbeats import RpcHeartbeats
from novasched.rpc.server import Dispatcher, SchedulerEndpoint, Serializer
from novasched.scheduler import errors
from tests.lab.wire import CALLS, context_of

INTERNAL = 'An internal error of the scheduler prevents it.'
SERVICE = 'A service that the scheduler depends on fails.'
CONFLICT = 'another process changed the consumer'


@dataclass(eq=False)
class Incoming:
    """A message for the dispatcher, like the message of oslo.messaging."""

    message: dict[str, Any]
    ctxt: dict[str, Any]
    client_timeout: float | None = None


def dispatch(error):
    """Dispatch a recorded request, which fails with an error."""

    def fail(request):
        raise error

    boot = CALLS['boot']
    driver = SimpleNamespace(select_destinations=fail)
    dispatcher = Dispatcher([SchedulerEndpoint(driver)], Serializer(), RpcHeartbeats())
    message = {'method': boot['method'], 'args': boot['args']}
    message['version'] = boot['version']
    return dispatcher.dispatch(Incoming(message, context_of(boot)))


def failure(error):
    """The encoded failure of a request with an error, and the traceback."""
    with pytest.raises(oslo_messaging.ExpectedException) as caught:
        dispatch(error)
    sent = json.loads(serialize_remote_exception(caught.value.exc_info))
    return sent, ''.join(sent.pop('tb'))


def nova_fault(name, text, /, **kwargs):
    """A failure from which a service of nova rebuilds an exception of nova."""
    about = {'class': name, 'module': 'nova.exception', 'message': text}
    return {**about, 'args': [text], 'kwargs': kwargs}


def no_valid_host(reason):
    """The failure for nova's NoValidHost."""
    text = f'No valid host was found. {reason}'
    return nova_fault('NoValidHost', text, reason=reason, code=500)


REFUSED = 'vcpus: invalid value of type str'
BAD_REQUEST = {**nova_fault('BadRequest', REFUSED), 'module': errors.__name__}
LOST = f'Failed to update allocations for consumer c-1. Error: {CONFLICT}'
MISSING = 'Metric cpu.percent could not be found on the compute host node h.n.'
CASES = [
    (errors.NoValidHost('Too few.'), no_valid_host('Too few.'), None),
    (errors.NoValidHost(), no_valid_host(''), None),
    (
        errors.ClaimFailed('c-1', CONFLICT),
        nova_fault(
            'AllocationUpdateFailed',
            LOST,
            consumer_uuid='c-1',
            error=CONFLICT,
            code=500,
        ),
        f'ERROR Cannot schedule: {LOST}',
    ),
    (
        errors.MetricMissing('cpu.percent', 'h', 'n'),
        nova_fault(
            'ComputeHostMetricNotFound',
            MISSING,
            name='cpu.percent',
            host='h',
            node='n',
            code=404,
        ),
        f'ERROR Cannot schedule: {MISSING}',
    ),
    (errors.Unavailable('away'), no_valid_host(SERVICE), 'ERROR Cannot schedule: away'),
    (
        errors.PlacementUnavailable('away'),
        no_valid_host(SERVICE),
        'ERROR Cannot schedule, since Placement fails: away',
    ),
    (
        errors.PlacementUnauthorized('401'),
        no_valid_host(SERVICE),
        'ERROR Cannot schedule, since Placement fails: 401',
    ),
    (
        OutcomeUnknown('late'),
        no_valid_host(SERVICE),
        'ERROR Cannot schedule, since Placement fails: late',
    ),
    (
        errors.DatabaseUnavailable('db: away'),
        no_valid_host(SERVICE),
        'ERROR Cannot schedule, since a database fails: db: away',
    ),
    (
        errors.NetworkUnavailable('Neutron: away'),
        no_valid_host(SERVICE),
        'ERROR Cannot schedule, since networks fail: Neutron: away',
    ),
    (
        ConfigError('[a] b', 'c', 'bad'),
        no_valid_host(INTERNAL),
        'ERROR Cannot schedule, since an option is wrong: [a] b = c: bad',
    ),
    (
        errors.BadPlugin('Own raised KeyError'),
        no_valid_host(INTERNAL),
        'ERROR Cannot schedule, since a plugin fails',
    ),
    (
        errors.StaleData('x'),
        no_valid_host(INTERNAL),
        'ERROR Exception during message handling',
    ),
    (
        errors.IncompleteData('x'),
        no_valid_host(INTERNAL),
        'ERROR Exception during message handling',
    ),
    (
        NovaschedError('x'),
        no_valid_host(INTERNAL),
        'ERROR Exception during message handling',
    ),
    (
        KeyError('a bug'),
        no_valid_host(INTERNAL),
        'ERROR Exception during message handling',
    ),
    (errors.BadRequest(REFUSED), BAD_REQUEST, f'WARNING Message refused: {REFUSED}'),
    (
        oslo_messaging.MessagingTimeout('x'),
        no_valid_host(INTERNAL),
        'ERROR Exception during message handling',
    ),
]
TRACEBACK = (
    errors.BadPlugin,
    errors.StaleData,
    errors.IncompleteData,
    KeyError,
    oslo_messaging.MessagingTimeout,
)


@pytest.mark.parametrize(
    ('error', 'sent', 'logged'), CASES, ids=lambda case: type(case).__name__
)
def test_errors_become_faults_of_nova_without_internal_texts(
    error, sent, logged, caplog
):
    """A conductor gets every error as a fault of nova, without internal texts. The log
    has the error for the operator, with the traceback of a bug."""
    with caplog.at_level(logging.INFO):
        fault, trace = failure(error)
    assert fault == sent
    # The traceback of the fault, without the traceback of the error.
    assert trace.count('Traceback') == 1
    assert 'away' not in trace

    if logged is None:
        assert caplog.records == []
        return
    [record] = caplog.records
    assert f'{record.levelname} {record.getMessage()}' == logged
    if isinstance(error, TRACEBACK) or type(error) is NovaschedError:
        assert record.exc_info[1] is error
    else:
        assert not record.exc_info


def test_each_error_class_has_a_fault_and_a_test_case():
    """The table has a fault for every error class, and the cases above test every
    fault."""
    for _, error_class in inspect.getmembers(errors, inspect.isclass):
        assert not issubclass(error_class, Exception) or error_class in faults.FAULTS
    assert {type(error) for error, *_ in CASES} >= set(faults.FAULTS) - {Exception}


@pytest.mark.parametrize(
    'message', [{}, {'method': 'ping', 'version': '4'}, {'method': 'ping', 'args': []}]
)
def test_a_malformed_message_gets_a_fault_and_no_heartbeat(message):
    """The caller gets a fault, and later no heartbeat."""
    heartbeats = RpcHeartbeats()
    incoming = Incoming(message, {})
    arrived = heartbeats.add(incoming)
    dispatcher = Dispatcher([], Serializer(), heartbeats)
    with pytest.raises(oslo_messaging.ExpectedException):
        dispatcher.dispatch(incoming)
    assert heartbeats.add(incoming) is not arrived


def test_an_error_is_freed_after_the_answer(monkeypatch):
    """An error holds the frames of the request, and the frames hold the hosts. After
    the answer, nothing holds the error, even without a garbage collection."""
    # pytest keeps log records.
    monkeypatch.setattr(faults.LOG, 'disabled', True)
    gc.disable()
    try:
        bug = NovaschedError('a bug')
        gone = weakref.ref(bug)
        try:
            dispatch(bug)
        except oslo_messaging.ExpectedException:
            # The traceback contains the frame of this function.
            bug.__traceback__ = None
        del bug
        assert gone() is None
    finally:
        gc.enable()
