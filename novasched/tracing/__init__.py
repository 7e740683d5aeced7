# SPDX-License-Identifier: Apache-2.0
"""Traces of decisions, for OpenTelemetry.

A span for each request and below it one for each step, made of the account that is kept of it
anyway, after the request has been answered. Nothing of OpenTelemetry is imported unless
``[novasched] tracing_endpoint`` says where traces go: ``begin`` does, and nothing else here.
"""

from __future__ import annotations

from importlib import import_module
from typing import Protocol

from novasched.errors import ConfigError
from novasched.records.account import Account
from novasched.records.record import Record
from novasched.secrets import hide

OPTION = '[novasched] tracing_endpoint'


class Tracing(Protocol):
    """Where traces go."""

    def __call__(self, account: Account, record: Record) -> None:
        """A request has been decided."""

    def close(self) -> None:
        """Send what is left, within little time."""


def begin(endpoint: str, host: str, version: str) -> Tracing:
    """Traces to a collector. No thread or connection begins before the first decision, since
    neither survives a fork.

    :param host: the name of this scheduler.
    :raises ConfigError: the libraries are not there.
    """
    try:
        exporting = import_module('novasched.tracing.exporting')
    except ImportError as error:
        why = f'{error.name or error} is missing; pip install novasched[tracing]'
        raise ConfigError(OPTION, hide(endpoint), why) from None
    tracing: Tracing = exporting.Exporting(endpoint, host, version)
    return tracing
