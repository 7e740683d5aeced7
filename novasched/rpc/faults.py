# SPDX-License-Identifier: Apache-2.0
"""What a caller is told when it does not get hosts.

oslo.messaging sends an exception as its class name, module, text, ``args`` and
``kwargs``; the caller builds it anew from these if it trusts the module, and a conductor
trusts ``nova.exception`` alone. Anything else reaches it as a RemoteError, on which it
leaves the servers in the state of building.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar, cast

import oslo_messaging

from novasched import errors

LOG = logging.getLogger(__name__)

_P = ParamSpec('_P')
_R = TypeVar('_R')


class _NovaFault(Exception):
    """An exception that a nova client knows by its name, in the shape in which nova sends
    it: ``kwargs`` are what its text is made of, and the HTTP status ``code``."""

    def __init__(self, text: str, **kwargs: Any) -> None:
        super().__init__(text)
        self.kwargs = kwargs

    def __init_subclass__(cls) -> None:
        cls.__module__ = 'nova.exception'


class NoValidHost(_NovaFault):
    """There are not hosts for all servers."""

    @classmethod
    def of(cls, error: errors.NoValidHost) -> NoValidHost:
        """The fault that says what an error says."""
        return cls(str(error), reason=error.reason, code=500)


class ComputeHostMetricNotFound(_NovaFault):
    """A host lacks a metric that is required."""

    @classmethod
    def of(cls, error: errors.MetricMissing) -> ComputeHostMetricNotFound:
        """The fault that says what an error says."""
        return cls(str(error), name=error.name, host=error.host, node=error.node, code=404)


def answered(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorator of what may fail by the content of a message.

    NoValidHost and MetricMissing become the faults above, and BadRequest is logged in one
    line. All are sent to the caller as expected, so that oslo.messaging logs no traceback
    for what is no fault of this service.
    """

    @functools.wraps(method)
    def inner(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        fault: Exception
        try:
            return method(*args, **kwargs)
        except errors.NoValidHost as error:
            fault = NoValidHost.of(error)
        except errors.MetricMissing as error:
            fault = ComputeHostMetricNotFound.of(error)
        except errors.BadRequest as error:
            fault = error
        # Past the handlers: in there, oslo.log adds the error in hand to what is logged,
        # and the caller is sent the traceback of the error that this one replaces.
        if isinstance(fault, errors.BadRequest):
            LOG.warning('Message refused: %s', fault)
        raise fault

    expected = oslo_messaging.expected_exceptions(_NovaFault, errors.BadRequest)
    return cast('Callable[_P, _R]', functools.wraps(method)(expected(inner)))
