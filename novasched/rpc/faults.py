# SPDX-License-Identifier: Apache-2.0
"""Maps an error to the fault for the caller, and to a log line for the operator.

oslo.messaging sends an exception as class name, module, text, ``args`` and ``kwargs``.
The caller rebuilds the exception if the caller trusts the module. A conductor trusts
only ``nova.exception``. A conductor gets every other exception as a RemoteError, and
after a RemoteError an evacuated instance stays in the state ``rebuilding`` for ever.
Therefore a valid request always fails with an exception of nova, and the cause is in
the log.
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
    """Make the class of an exception that nova's services know by name.

    :param name: the name of the class in ``nova.exception``.
    :param code: the HTTP status, an element of ``kwargs``.
    :param parts: attributes of the error, which become the other ``kwargs``.
    """

    class NovaFault(Exception):
        def __init__(self, error: NovaschedError) -> None:
            super().__init__(str(error))
            self.kwargs = {part: getattr(error, part) for part in parts}
            self.kwargs['code'] = code

    NovaFault.__module__ = 'nova.exception'
    NovaFault.__name__ = name
    NovaFault.__qualname__ = name
    return NovaFault


NoValidHostFault = _nova_fault('NoValidHost', 500, 'reason')
AllocationUpdateFault = _nova_fault(
    'AllocationUpdateFailed', 500, 'consumer_uuid', 'error'
)
HostMetricFault = _nova_fault('ComputeHostMetricNotFound', 404, 'name', 'host', 'node')


def _with_reason(reason: str) -> Callable[[Exception], Exception]:
    """Make a NoValidHost with a fixed reason, which shows nothing of the error."""
    return lambda error: NoValidHostFault(errors.NoValidHost(reason))


@dataclass(frozen=True, slots=True)
class Fault:
    """The answer to errors of a class.

    :ivar fault: makes the exception for the caller.
    :ivar line: the format of the log line, with ``%s`` for the error. Empty: no line.
    :ivar traceback: True for errors of the code, which are logged with a traceback.
    """

    fault: Callable[[Any], Exception]
    line: str = ''
    level: int = logging.ERROR
    traceback: bool = False


_outage = _with_reason('A service that the scheduler depends on fails.')
_internal = _with_reason('An internal error of the scheduler prevents it.')
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
    # Without a bug, the driver handles this error.
    errors.StaleData: _BUG,
    errors.IncompleteData: _BUG,
    NovaschedError: _BUG,
    Exception: _BUG,
    # The sender is no service of nova, so no exception of nova is needed.
    errors.BadRequest: Fault(
        lambda error: error, 'Message refused: %s', logging.WARNING
    ),
}
"""Class of an error to its fault. A class without an entry has the fault of its nearest
base class."""


def translate_error(error: Exception) -> Exception:
    """Log an error, and return the exception for the caller.

    Call this function outside the ``except`` clause of the error: within the clause,
    oslo.log would add the error to the line, and the fault would carry the traceback of
    the error.
    """
    fault = next(FAULTS[base] for base in type(error).__mro__ if base in FAULTS)
    if fault.line:
        arguments = []
        if '%s' in fault.line:
            arguments.append(error)
        exc_info = None
        if fault.traceback:
            exc_info = error
        LOG.log(fault.level, fault.line, *arguments, exc_info=exc_info)

    return fault.fault(error)
