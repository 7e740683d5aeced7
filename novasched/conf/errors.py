# SPDX-License-Identifier: Apache-2.0
"""Errors of the configuration, and the base of all errors."""

from novasched.conf.redaction import hide


class NovaschedError(Exception):
    """Base of our errors; its text is fit for a log and holds no secret."""


class ConfigError(NovaschedError):
    """For the operator: an option's value stops the start. Names both, in one line."""

    def __init__(self, option: str, value: object, why: str) -> None:
        super().__init__(' '.join(f'{option} = {value}: {why}'.split()))


def safe_text(error: BaseException) -> str:
    """An error's text without secrets; that of our own had them hidden where it was
    made."""
    if isinstance(error, NovaschedError):
        return str(error)
    return hide(error)
