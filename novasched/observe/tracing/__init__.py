# SPDX-License-Identifier: Apache-2.0
"""Traces of decisions, for OpenTelemetry.

A span for each request and below it one for each step, made of its decision after the request
has been answered. Only ``begin`` imports OpenTelemetry, where ``[novasched] tracing_endpoint`` is
set.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from novasched.conf.errors import ConfigError
from novasched.conf.redaction import redact

if TYPE_CHECKING:
    from novasched.observe.tracing.exporting import DecisionExporter

OPTION = '[novasched] tracing_endpoint'


def begin(endpoint: str, host: str, version: str) -> DecisionExporter:
    """Traces to a collector. No thread or connection begins before the first decision, since
    neither survives a fork.

    :param host: the name of this scheduler.
    :raises ConfigError: the libraries are not there.
    """
    try:
        from novasched.observe.tracing.exporting import DecisionExporter
    except ImportError as error:
        why = f'{error.name or error} is missing; pip install novasched[tracing]'
        raise ConfigError(OPTION, redact(endpoint), why) from None
    return DecisionExporter(endpoint, host, version)
