# SPDX-License-Identifier: Apache-2.0
"""Tell probes whether the scheduler on this machine is healthy.

Whether its processes move; with --ready, whether they take requests and can decide
them. The exit status is 0 for pass and warn, 1 for fail or if nobody answers, 2 for a
wrong argument or if [novasched] health_bind is empty.
"""

# A probe runs this every few seconds: nothing is imported that takes long.
import argparse
import json
import socket
import struct
import sys
from typing import Any

from oslo_config import cfg

from novasched.conf.errors import ConfigError, NovaschedError
from novasched.conf.options import OPTIONS
from novasched.conf.settings import Address, SocketFile
from novasched.tools import USAGE_ERROR, add_config_files, config_files

FAIL = 'fail'
FAILED = 1
TIMEOUT_S = 5.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add('--ready', action='store_true', help='can requests be decided')
    add('--format', choices=('line', 'json'), default='line', help='(%(default)s)')
    add_config_files(parser)


def run(arguments: argparse.Namespace) -> int:
    """Do it; the exit status."""
    address, host = configured_address(arguments)
    if address is None:
        print('novaschedctl health: [novasched] health_bind is empty', file=sys.stderr)
        return USAGE_ERROR
    found = ask(address, '/ready' if arguments.ready else '/health')
    answering = found.get('notes', {}).get('host', host)
    # No failure, since a probe may have another nova.conf.
    if host and answering != host:
        print(
            f'novaschedctl health: {address}: the scheduler of host {answering} '
            f'answers, and [DEFAULT] host is {host}',
            file=sys.stderr,
        )
    print(json.dumps(found, indent=2) if arguments.format == 'json' else as_line(found))
    if found['status'] == FAIL:
        return FAILED
    return 0


def as_line(found: dict[str, Any]) -> str:
    """The status, and what does not pass."""
    items = [
        f'{name}: {check["output"]}'
        for name, check in found['checks'].items()
        if 'output' in check
    ]
    return ' '.join([found['status'], *(['-', '; '.join(items)] if items else [])])


def configured_address(
    arguments: argparse.Namespace,
) -> tuple[Address | SocketFile | None, str | None]:
    """The address of ``[novasched] health_bind``, and ``[DEFAULT] host`` if it is set.

    :raises ConfigError: nova.conf cannot be read.
    """
    conf = cfg.ConfigOpts()
    for group, option in OPTIONS:
        conf.register_opt(option, group=None if group == 'DEFAULT' else group)
    files = config_files(arguments.config_file, arguments.config_dir)
    try:
        conf(files, project='nova', prog='novasched')
        address: Address | SocketFile | None = conf.novasched.health_bind
        host: str | None = conf.host
    except cfg.ConfigFileParseError as error:  # the broken line may hold anything
        raise ConfigError(
            '--config-file', error.config_file, 'it cannot be read'
        ) from None
    except (cfg.Error, ValueError, OSError) as error:
        raise ConfigError(
            '[novasched] health_bind', '(not shown)', type(error).__name__
        ) from None
    return address, host


def ask(address: Address | SocketFile, path: str) -> dict[str, Any]:
    """The answer to a question.

    :raises NovaschedError: there is none.
    """
    try:
        with _connected(address) as connection:
            connection.sendall(f'GET {path} HTTP/1.0\r\n\r\n'.encode())
            with connection.makefile('rb') as stream:
                body = stream.read().partition(b'\r\n\r\n')[2]
        found = json.loads(body)
    except (OSError, ValueError) as error:
        if isinstance(error, OSError) and error.strerror:
            why = error.strerror
        else:
            why = str(error)
        raise NovaschedError(f'{address}: no answer of novasched: {why}') from None
    if not isinstance(found, dict) or 'status' not in found:
        raise NovaschedError(f'{address}: no answer of novasched')
    return found


def _connected(address: Address | SocketFile) -> socket.socket:
    """:raises OSError: nobody is there."""
    if isinstance(address, Address):
        return socket.create_connection((address.host, address.port), TIMEOUT_S)
    made = socket.socket(socket.AF_UNIX)
    # Python's own timeout does not wait where many others wait to be connected.
    made.setsockopt(
        socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack('ll', int(TIMEOUT_S), 0)
    )
    try:
        made.connect(address.path)
    except OSError:
        made.close()
        raise
    made.settimeout(TIMEOUT_S)
    return made
