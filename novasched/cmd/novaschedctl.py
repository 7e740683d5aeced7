# SPDX-License-Identifier: Apache-2.0
"""The tool for operators: ``novaschedctl COMMAND``.

A command is a module of ``novasched/tools`` with ``add_arguments(parser)``, and with
``run(arguments)``, which returns the exit status. The first line of the module's
docstring is the summary of the command.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from novasched.conf.errors import NovaschedError

TOOL_NAME = 'novaschedctl'
COMMANDS = (
    'check',
    'explain',
    'health',
    'plan',
    'sandbox',
    'shadow',
    'simulate',
    'status',
)
FAILED = 1
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """A parser with errors of one line, without the usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f'{self.prog}: {message}\n')


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command; an error that a user must fix ends the command with a line."""
    if argv is None:
        argv = sys.argv[1:]
    parser = Parser(prog=TOOL_NAME, description='Tools for those who run novasched.')
    subparsers = parser.add_subparsers(metavar='COMMAND', required=True)

    # A given command starts faster if no module of another command is imported.
    commands: Sequence[str] = COMMANDS
    if argv and argv[0] in COMMANDS:
        commands = argv[:1]
    for name in commands:
        module = import_module(f'novasched.tools.{name}')
        summary, _, details = (module.__doc__ or '').partition('\n')
        subparser = subparsers.add_parser(
            name, help=summary, description=summary, epilog=details
        )
        module.add_arguments(subparser)
        subparser.set_defaults(run=module.run)
    arguments = parser.parse_args(argv)

    try:
        return int(arguments.run(arguments))
    except NovaschedError as error:
        print(f'{TOOL_NAME}: {error}', file=sys.stderr)
        return FAILED
    except KeyboardInterrupt:
        print(f'{TOOL_NAME}: interrupted', file=sys.stderr)
        return INTERRUPTED


if __name__ == '__main__':
    sys.exit(main())
