# SPDX-License-Identifier: Apache-2.0
"""The real openstack-placement application on a loopback port.

For the sandbox and for tests: no keystone, one accepted token, any database that
SQLAlchemy can name. As a program it runs until SIGTERM or SIGINT:

    python -m novasched.sandbox.placement --connection sqlite:////tmp/placement.db
"""

from __future__ import annotations

import argparse
import contextlib
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable
from importlib import import_module
from types import SimpleNamespace
from typing import Any

from novasched.errors import NovaschedError

CONNECTION_VARIABLE = 'NOVASCHED_PLACEMENT_CONNECTION'

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

_NEEDED = {
    'waitress': 'waitress',
    'cfg': 'oslo_config.cfg',
    'enginefacade': 'oslo_db.sqlalchemy.enginefacade',
    'conf': 'placement.conf',
    'db_api': 'placement.db_api',
    'deploy': 'placement.deploy',
    'policy': 'placement.policy',
    'resource_class': 'placement.objects.resource_class',
    'trait': 'placement.objects.trait',
}

# Placement keeps its database, policy and synchronisation state in module globals.
_one_at_a_time = threading.Lock()


class PlacementMissing(NovaschedError):
    """For the operator: the optional packages of the sandbox are not installed."""


class PlacementServer:
    """A Placement that listens from start() to stop(); one at a time in a process.

    ``conflict_retries`` is the server's own repetition of a conflicting write. More than
    one lets concurrent claims overfill a provider (it repeats inside a stale snapshot),
    so the client is the one who repeats.
    """

    def __init__(
        self,
        connection: str,
        port: int = 0,
        *,
        token: str = 'admin',
        threads: int = 8,
        conflict_retries: int = 1,
    ) -> None:
        self._connection = connection
        self._port = port
        self._token = token
        # SQLite has one writer: a transaction that read before another one wrote is told
        # 'database is locked' at once, and Placement does not repeat it. One request at a
        # time has no such loser; connections are still many and kept alive.
        self._threads = 1 if connection.startswith('sqlite') else threads
        self._conflict_retries = conflict_retries
        self._server: Any = None
        self._thread: threading.Thread | None = None
        self._unpatch: Callable[[], None] | None = None

    @property
    def url(self) -> str:
        """Where it listens; the port is known once it is started."""
        return f'http://127.0.0.1:{self._port}'

    def start(self) -> None:
        """Make the schema where it is missing, then listen. Answers when it returns."""
        modules = _modules()
        if not _one_at_a_time.acquire(blocking=False):
            raise RuntimeError('this process already runs a Placement')
        try:
            application = self._application(modules)
            self._server = modules.waitress.create_server(
                _accept_token(application, self._token),
                host='127.0.0.1',
                port=self._port,
                threads=self._threads,
            )
        except BaseException:
            self._release()
            raise
        self._port = self._server.effective_port
        # Requests that wait for a thread are normal here, not worth a warning each.
        logging.getLogger('waitress.queue').setLevel(logging.ERROR)
        self._thread = threading.Thread(target=self._server.run, name='placement', daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close every connection and let the port go. The database stays."""
        if self._thread is None:
            return
        server = self._server
        server.task_dispatcher.shutdown()
        # The sockets belong to the loop's thread; only that thread may close them.
        # An answer that ends at this moment wakes the loop, too. Then all is closed already.
        with contextlib.suppress(OSError):
            server.trigger.pull_trigger(lambda: server.asyncore.close_all(server._map))
        self._thread.join()
        self._server = self._thread = None
        self._release()

    def __enter__(self) -> PlacementServer:
        self.start()
        return self

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    def _application(self, modules: SimpleNamespace) -> Wsgi:
        conf = self._configuration(modules)
        database = {k: v for k, v in conf.placement_database.items() if k != 'sync_on_startup'}
        manager = modules.enginefacade.transaction_context()
        manager.configure(**database)
        # A factory of our own in place of the global one, which starts only once.
        unpatch = modules.db_api.placement_context_manager.patch_factory(manager)

        def undo() -> None:
            manager.dispose_pool()
            unpatch()
            modules.policy.reset()

        self._unpatch = undo
        # What an earlier server of this process has synchronised was another database.
        modules.trait._TRAITS_SYNCED = False
        modules.resource_class._RESOURCE_CLASSES_SYNCED = False
        application: Wsgi = modules.deploy.loadapp(conf)
        return application

    def _configuration(self, modules: SimpleNamespace) -> Any:
        conf = modules.cfg.ConfigOpts()
        modules.conf.register_opts(conf)
        overrides: dict[str, dict[str, object]] = {
            'api': {'auth_strategy': 'noauth2'},
            'placement': {'allocation_conflict_retry_count': self._conflict_retries},
            'placement_database': {
                'connection': self._connection,
                'sync_on_startup': True,
                'sqlite_synchronous': False,
                'max_retries': 2,
                'retry_interval': 1,
            },
        }
        for group, values in overrides.items():
            for name, value in values.items():
                conf.set_override(name, value, group)
        # A project of its own: no file of an installed Placement is read.
        conf(
            [],
            project='novasched-sandbox',
            default_config_files=[],
            default_config_dirs=[],
        )
        return conf

    def _release(self) -> None:
        if self._unpatch is not None:
            self._unpatch()
            self._unpatch = None
        _one_at_a_time.release()


def _modules() -> SimpleNamespace:
    """What an installation without the extra lacks, imported when it is needed."""
    try:
        return SimpleNamespace(**{name: import_module(path) for name, path in _NEEDED.items()})
    except ImportError as error:
        raise PlacementMissing(
            f'{error.name} is not installed: pip install novasched[sandbox]'
        ) from error


def _accept_token(application: Wsgi, token: str) -> Wsgi:
    """Answer 401 to any other token, as keystone's middleware would: noauth2 takes every
    token for a user. The root document, with the versions, stays public."""

    def guarded(environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        given = environ.get('HTTP_X_AUTH_TOKEN', '')
        if environ.get('PATH_INFO') in ('', '/') or given == token:
            return application(environ, start_response)
        body = b'{"error": {"code": 401, "title": "Unauthorized"}}'
        headers = [('Content-Type', 'application/json'), ('Content-Length', str(len(body)))]
        start_response('401 Unauthorized', headers)
        return [body]

    return guarded


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog='python -m novasched.sandbox.placement', description='Run Placement on loopback.'
    )
    parser.add_argument(
        '--connection',
        default=os.environ.get(CONNECTION_VARIABLE),
        help=f"SQLAlchemy URL of its database (default: ${CONNECTION_VARIABLE}'s value)",
    )
    parser.add_argument('--port', type=int, default=0, help='0, the default, takes a free one')
    parser.add_argument('--token', default='admin', help='the one token that is accepted')
    parser.add_argument('--threads', type=int, default=8)
    parser.add_argument('--conflict-retries', type=int, default=1)
    parser.add_argument('--log-level', default='WARNING')
    arguments = parser.parse_args()
    if not arguments.connection:
        parser.error(f'--connection or ${CONNECTION_VARIABLE} is needed')
    return arguments


def main() -> int:
    """Run in the foreground; one line on standard output says when it is ready."""
    arguments = _arguments()
    logging.basicConfig(level=arguments.log_level.upper(), stream=sys.stderr)
    stopped = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stopped.set())
    server = PlacementServer(
        arguments.connection,
        arguments.port,
        token=arguments.token,
        threads=arguments.threads,
        conflict_retries=arguments.conflict_retries,
    )
    try:
        server.start()
    except PlacementMissing as error:
        print(error, file=sys.stderr)
        return 1
    print(f'listening on {server.url}', flush=True)
    stopped.wait()
    server.stop()
    return 0


if __name__ == '__main__':
    sys.exit(main())
