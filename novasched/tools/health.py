# SPDX-License-Identifier: Apache-2.0
"""Tell probes whether the scheduler on this machine is healthy.

The scheduler is healthy if its processes make progress. With --ready, it must also take
requests and be able to decide them. The exit status is 0 for pass and warn, 1 for fail
or without an answer, 2 for a wrong argument or if [novasched] health_bind is empty.
"""

# A probe runs this command every few seconds, so that slow imports are avoided.
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
    """Print the health, and return the exit status."""
    address, host = configured_address(arguments)
    if address is None:
        print('novaschedctl health: [novasched] health_bind is empty', file=sys.stderr)
        return USAGE_ERROR

    path = '/health'
    if arguments.ready:
        path = '/ready'
    health = ask(address, path)
    answering = health.get('notes', {}).get('host', host)
    # A warning only, since a probe may have a different nova.conf.
    if host and answering != host:
        print(
            f'novaschedctl health: {address}: the scheduler of host {answering} '
            f'answers, and [DEFAULT] host is {host}',
            file=sys.stderr,
        )

    text = as_line(health)
    if arguments.format == 'json':
        text = json.dumps(health, indent=2)
    print(text)
    if health['status'] == FAIL:
        return FAILED
    return 0


def as_line(health: dict[str, Any]) -> str:
    """The status, and the checks that do not pass."""
    failures = []
    for name, check in health['checks'].items():
        if 'output' in check:
            failures.append(f'{name}: {check["output"]}')
    if failures:
        return f'{health["status"]} - {"; ".join(failures)}'
    return str(health['status'])


def configured_address(
    arguments: argparse.Namespace,
) -> tuple[Address | SocketFile | None, str | None]:
    """The address of ``[novasched] health_bind``, and ``[DEFAULT] host`` if it is set.

    :raises ConfigError: nova.conf cannot be read.
    """
    conf = cfg.ConfigOpts()
    for group, option in OPTIONS:
        if group == 'DEFAULT':
            conf.register_opt(option)
        else:
            conf.register_opt(option, group)
    files = config_files(arguments.config_file, arguments.config_dir)
    try:
        conf(files, project='nova', prog='novasched')
        address: Address | SocketFile | None = conf.novasched.health_bind
        host: str | None = conf.host
    except cfg.ConfigFileParseError as error:
        # The text of the error has the broken line, which may be a secret.
        raise ConfigError(
            '--config-file', error.config_file, 'it cannot be read'
        ) from None
    except (cfg.Error, ValueError, OSError) as error:
        raise ConfigError(
            '[novasched] health_bind', '(not shown)', type(error).__name__
        ) from None
    return address, host


def ask(address: Address | SocketFile, path: str) -> dict[str, Any]:
    """Ask the HTTP process of the scheduler.

    :raises NovaschedError: there is no answer, or no answer of novasched.
    """
    try:
        with _connected(address) as connection:
            connection.sendall(f'GET {path} HTTP/1.0\r\n\r\n'.encode())
            with connection.makefile('rb') as stream:
                body = stream.read().partition(b'\r\n\r\n')[2]
        answer = json.loads(body)
    except (OSError, ValueError) as error:
        reason = str(error)
        if isinstance(error, OSError) and error.strerror:
            reason = error.strerror
        raise NovaschedError(f'{address}: no answer of novasched: {reason}') from None
    if not isinstance(answer, dict) or 'status' not in answer:
        raise NovaschedError(f'{address}: no answer of novasched')
    return answer


def _connected(address: Address | SocketFile) -> socket.socket:
    """A connection to the HTTP process.

    :raises OSError: no process listens on the address.
    """
    if isinstance(address, Address):
        return socket.create_connection((address.host, address.port), TIMEOUT_S)

    connection = socket.socket(socket.AF_UNIX)
    # With a timeout of Python, connect() fails at once while the backlog is full.
    timeout = struct.pack('ll', int(TIMEOUT_S), 0)
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, timeout)
    try:
        connection.connect(address.path)
    except OSError:
        connection.close()
        raise
    connection.settimeout(TIMEOUT_S)
    return connection
