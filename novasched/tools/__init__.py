# SPDX-License-Identifier: Apache-2.0
"""Commands of ``novaschedctl``, and the arguments that several of them have."""

import argparse
from collections.abc import Iterable
from importlib import import_module
from typing import Any

from novasched.conf.errors import NovaschedError

USAGE_ERROR = 2
"""Exit status of a command with wrong arguments."""
MAX_AMOUNT = 2**31 - 1
"""The greatest amount that Placement knows."""


def imported(module: str, extra: str) -> Any:
    """A module that needs the optional packages of ``novasched[extra]``.

    :raises NovaschedError: a package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        why = f'{error.name} is not installed: pip install novasched[{extra}]'
        raise NovaschedError(why) from error


def add_config_files(parser: argparse.ArgumentParser) -> None:
    """Declare the options that name nova.conf."""
    for name, metavar in (('--config-file', 'FILE'), ('--config-dir', 'DIR')):
        parser.add_argument(
            name,
            metavar=metavar,
            action='append',
            default=[],
            help='nova.conf, as the daemon',
        )


def config_files(files: Iterable[str], folders: Iterable[str]) -> list[str]:
    """The arguments by which oslo.config is told of files and folders."""
    return [
        *(f'--config-file={path}' for path in files),
        *(f'--config-dir={path}' for path in folders),
    ]


def whole_number(text: str, name: str = 'a number', least: int = 1) -> int:
    """The value of an argument.

    :raises argparse.ArgumentTypeError: it is not whole, or out of bounds.
    """
    try:
        value = int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f'{name} must be whole, not {text!r}'
        ) from None
    if not least <= value <= MAX_AMOUNT:
        raise argparse.ArgumentTypeError(
            f'{name} must be from {least} to {MAX_AMOUNT}, not {value}'
        )
    return value
