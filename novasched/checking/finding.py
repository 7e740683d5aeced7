# SPDX-License-Identifier: Apache-2.0
"""What a check found."""

from __future__ import annotations

import enum
from dataclasses import dataclass


class Level(str, enum.Enum):
    """How much a finding matters."""

    OK = 'ok'
    NOTE = 'note'
    """Worth knowing: something differs from nova-scheduler, or is left alone."""
    WARNING = 'warning'
    """novasched runs, but perhaps not as the operator means it."""
    ERROR = 'error'
    """To be mended before the switch."""

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Finding:
    """One line of the report; holds no secret."""

    area: str
    level: Level
    subject: str
    """The option, server or plugin that it is about."""
    text: str
