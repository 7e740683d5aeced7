# SPDX-License-Identifier: Apache-2.0
"""Errors of the configuration, and the base class of all errors of novasched."""

from novasched.conf.redaction import hide


class NovaschedError(Exception):
    """Base class of all errors; the text may be logged and contains no secret."""


class ConfigError(NovaschedError):
    """An invalid value of an option, which stops the start.

    The text names the option and the value in one line, for the operator.

    :ivar option: the option with its group.
    :ivar value: the value as shown.
    :ivar why: the reason.
    """

    def __init__(self, option: str, value: object, why: str) -> None:
        self.option = option
        self.value = str(value)
        self.why = why
        super().__init__(' '.join(f'{option} = {value}: {why}'.split()))


def safe_text(error: BaseException) -> str:
    """Return the text of an error without secrets."""
    # Errors of novasched are free of secrets since they were made.
    if isinstance(error, NovaschedError):
        return str(error)
    return hide(error)
