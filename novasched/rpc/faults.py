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


class NoValidHost(Exception):
    """The NoValidHost that a nova client knows, in the shape in which nova sends it.

    ``code`` is the HTTP status that nova's exceptions carry.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f'No valid host was found. {reason}')
        self.kwargs: dict[str, Any] = {'reason': reason, 'code': 500}


NoValidHost.__module__ = 'nova.exception'


def answered(method: Callable[_P, _R]) -> Callable[_P, _R]:
    """Decorator of what may fail by the content of a message.

    :class:`novasched.errors.NoValidHost` becomes the one above, and BadRequest is logged
    in one line. Both are sent to the caller as expected, so that oslo.messaging logs no
    traceback for what is no fault of this service.
    """

    @functools.wraps(method)
    def inner(*args: _P.args, **kwargs: _P.kwargs) -> _R:
        fault: Exception
        try:
            return method(*args, **kwargs)
        except errors.NoValidHost as error:
            fault = NoValidHost(error.reason)
        except errors.BadRequest as error:
            fault = error
        # Past the handlers: in there, oslo.log adds the error in hand to what is logged,
        # and the caller is sent the traceback of the error that this one replaces.
        if isinstance(fault, errors.BadRequest):
            LOG.warning('Message refused: %s', fault)
        raise fault

    expected = oslo_messaging.expected_exceptions(NoValidHost, errors.BadRequest)
    return cast('Callable[_P, _R]', functools.wraps(method)(expected(inner)))
