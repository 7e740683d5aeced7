# SPDX-License-Identifier: Apache-2.0
"""The operator's tool: ``novaschedctl COMMAND``.

A command is a module with a docstring of one line or more, ``add_arguments(parser)``
and ``run(arguments)``, whose answer is the exit status.
"""

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import NoReturn

from novasched.conf.errors import NovaschedError

TOOL_NAME = 'novaschedctl'
COMMANDS = 'check', 'explain', 'health', 'sandbox', 'shadow', 'simulate', 'status'
FAILED = 1
INTERRUPTED = 130


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and leaves the usage to ``--help``."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f'{self.prog}: {message}\n')


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; what a user must mend ends it with one line."""
    parser = Parser(prog=TOOL_NAME, description='Tools for those who run novasched.')
    commands = parser.add_subparsers(metavar='COMMAND', required=True)
    argv = sys.argv[1:] if argv is None else argv
    # One that is asked for is not to wait until the others are imported.
    for name in argv[:1] if argv and argv[0] in COMMANDS else COMMANDS:
        module = import_module(f'novasched.tools.{name}')
        summary, _, details = (module.__doc__ or '').partition('\n')
        added = commands.add_parser(
            name, help=summary, description=summary, epilog=details
        )
        module.add_arguments(added)
        added.set_defaults(run=module.run)
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
