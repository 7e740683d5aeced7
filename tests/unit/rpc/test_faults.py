# SPDX-License-Identifier: Apache-2.0
"""What a caller is told when it gets no hosts."""

from __future__ import annotations

import json
import logging
from typing import Any

import oslo_messaging
import pytest
from oslo_messaging._drivers.common import serialize_remote_exception

from novasched import errors
from novasched.rpc import faults


def failure(error: Exception) -> Any:
    """What goes over the wire when a method fails with that error."""

    @faults.answered
    def method() -> None:
        raise error

    with pytest.raises(oslo_messaging.ExpectedException) as caught:
        method()
    return json.loads(serialize_remote_exception(caught.value.exc_info))


@pytest.mark.parametrize('reason', ['There are not enough hosts available.', ''])
def test_no_valid_host(reason: str) -> None:
    """nova builds its NoValidHost from class, module, args and kwargs; these are its own."""
    sent = failure(errors.NoValidHost(reason))
    text = f'No valid host was found. {reason}'
    assert {key: sent[key] for key in sent if key != 'tb'} == {
        'class': 'NoValidHost',
        'module': 'nova.exception',
        'message': text,
        'args': [text],
        'kwargs': {'reason': reason, 'code': 500},
    }


def test_metric_missing() -> None:
    """A metric that is required and missing is the fault by which nova says so."""
    sent = failure(errors.MetricMissing('cpu.percent', 'h', 'n'))
    text = 'Metric cpu.percent could not be found on the compute host node h.n.'
    assert {key: sent[key] for key in sent if key != 'tb'} == {
        'class': 'ComputeHostMetricNotFound',
        'module': 'nova.exception',
        'message': text,
        'args': [text],
        'kwargs': {'name': 'cpu.percent', 'host': 'h', 'node': 'n', 'code': 404},
    }


def test_no_valid_host_ends_here() -> None:
    """The traceback that is sent holds the fault alone, not the error behind it."""
    trace = ''.join(failure(errors.NoValidHost('x'))['tb'])
    assert trace.count('Traceback') == 1
    assert 'novasched.errors' not in trace


def test_bad_request(caplog: pytest.LogCaptureFixture) -> None:
    """A message that cannot be understood is answered so, and warned about in one line."""
    with caplog.at_level(logging.WARNING):
        sent = failure(errors.BadRequest('vcpus: str does not fit'))
    assert sent['class'] == 'BadRequest'
    assert sent['message'] == 'vcpus: str does not fit'
    assert caplog.messages == ['Message refused: vcpus: str does not fit']
    assert caplog.records[0].exc_info is None


def test_other_errors_are_not_expected() -> None:
    """An error of this service's own is left for oslo.messaging to log and to answer."""

    @faults.answered
    def method() -> None:
        raise KeyError('a bug')

    with pytest.raises(KeyError):
        method()
