# SPDX-License-Identifier: Apache-2.0
"""The fault that a caller is sent for each error, and the log line for the operator.

oslo.messaging sends an exception as its class name, module, text, ``args`` and
``kwargs``; the caller builds it anew from these if it trusts the module, and a
conductor trusts ``nova.exception`` alone. Anything else reaches it as a RemoteError,
after which an evacuation stays in the state of rebuilding for ever. So a request that
is understood ends in one of nova's own exceptions, whatever goes wrong, and the cause
is logged.
"""

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from novasched.conf.errors import ConfigError, NovaschedError
from novasched.scheduler import errors

# Operators search for what this logger writes.
LOG = logging.getLogger('nova.scheduler.manager')


def _nova_fault(name: str, code: int, *parts: str) -> type[Exception]:
    """The class of an exception that a nova client knows by its name, in the shape in
    which nova sends it: ``kwargs`` are what its text is made of, and the HTTP status
    ``code``."""

    class NovaFault(Exception):
        def __init__(self, error: NovaschedError) -> None:
            super().__init__(str(error))
            self.kwargs = {part: getattr(error, part) for part in parts} | {
                'code': code
            }

    NovaFault.__module__ = 'nova.exception'
    NovaFault.__name__ = name
    NovaFault.__qualname__ = name
    return NovaFault


NoValidHostFault = _nova_fault('NoValidHost', 500, 'reason')
AllocationUpdateFault = _nova_fault(
    'AllocationUpdateFailed', 500, 'consumer_uuid', 'error'
)
HostMetricFault = _nova_fault('ComputeHostMetricNotFound', 404, 'name', 'host', 'node')


def _because(reason: str) -> Callable[[Exception], Exception]:
    """A fault whose reason says nothing of the error."""
    return lambda error: NoValidHostFault(errors.NoValidHost(reason))


@dataclass(frozen=True, slots=True)
class Fault:
    """The answer to errors of a class.

    :ivar fault: makes the exception that is sent.
    :ivar line: is logged with the error in place of ``%s``; empty: nothing is.
    :ivar traceback: True if code has to be mended, so that the log has the traceback.
    """

    fault: Callable[[Any], Exception]
    line: str = ''
    level: int = logging.ERROR
    traceback: bool = False


_outage = _because('A service that the scheduler depends on fails.')
_internal = _because('An internal error of the scheduler prevents it.')
_BUG = Fault(_internal, 'Exception during message handling', traceback=True)
_PLACEMENT = Fault(_outage, 'Cannot schedule, since Placement fails: %s')

FAULTS: Mapping[type[Exception], Fault] = {
    errors.NoValidHost: Fault(NoValidHostFault),
    errors.ClaimFailed: Fault(AllocationUpdateFault, 'Cannot schedule: %s'),
    # nova-scheduler sends this one, too.
    errors.MetricMissing: Fault(HostMetricFault, 'Cannot schedule: %s'),
    errors.Unavailable: Fault(_outage, 'Cannot schedule: %s'),
    errors.PlacementUnavailable: _PLACEMENT,
    errors.PlacementUnauthorized: _PLACEMENT,
    errors.DatabaseUnavailable: Fault(
        _outage, 'Cannot schedule, since a database fails: %s'
    ),
    errors.NetworkUnavailable: Fault(
        _outage, 'Cannot schedule, since networks fail: %s'
    ),
    ConfigError: Fault(_internal, 'Cannot schedule, since an option is wrong: %s'),
    errors.BadPlugin: Fault(
        _internal, 'Cannot schedule, since a plugin fails', traceback=True
    ),
    NovaschedError: _BUG,
    Exception: _BUG,
    # No request: its sender is told so, in this service's own words.
    errors.BadRequest: Fault(
        lambda error: error, 'Message refused: %s', logging.WARNING
    ),
}
"""By the class of an error, or else by the next of its base classes that is here."""


def translate_error(error: Exception) -> Exception:
    """The exception that the caller is sent for an error, which is logged.

    This is called after the error has been handled: within the handler, oslo.log would
    add the error to the line, and the fault would carry the error's traceback.
    """
    row = next(FAULTS[base] for base in type(error).__mro__ if base in FAULTS)
    if row.line:
        arguments = (error,) if '%s' in row.line else ()
        LOG.log(
            row.level, row.line, *arguments, exc_info=error if row.traceback else None
        )
    return row.fault(error)
