# SPDX-License-Identifier: Apache-2.0
"""The real openstack-placement application on a loopback port.

For the sandbox and for tests: no keystone, one accepted token, any database that
SQLAlchemy can name.
"""

import logging
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import waitress
from oslo_config import cfg
from oslo_db.sqlalchemy import enginefacade
from placement import conf as placement_conf
from placement import db_api, deploy, policy
from placement.objects import resource_class, trait

Wsgi = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]

# Placement keeps its database, policy and synchronisation state in module globals.
_one_at_a_time = threading.Lock()


@contextmanager
def serving(connection: str, token: str, port: int = 0) -> Iterator[str]:
    """Run Placement, with its schema, until the end; the value is its URL. One at a
    time in a process; the database stays."""
    if not _one_at_a_time.acquire(blocking=False):
        raise RuntimeError('this process already runs a Placement')
    with ExitStack() as stack:
        stack.callback(_one_at_a_time.release)
        server = waitress.create_server(
            _accept_token(_application(connection, stack), token),
            host='127.0.0.1',
            port=port,
            # SQLite has one writer: a transaction that read before another one wrote is
            # told 'database is locked' at once, and Placement does not repeat it. One
            # request at a time has no such loser; connections are still many and kept
            # alive.
            threads=1 if connection.startswith('sqlite') else 8,
        )
        # Requests that wait for a thread are normal here, not worth a warning each.
        logging.getLogger('waitress.queue').setLevel(logging.ERROR)
        thread = threading.Thread(target=server.run, name='placement', daemon=True)
        thread.start()
        try:
            yield f'http://127.0.0.1:{server.effective_port}'
        finally:
            server.task_dispatcher.shutdown()
            # The sockets belong to the loop's thread; only that thread may close them.
            # An answer that ends at this moment wakes the loop, too. Then all is closed
            # already.
            with suppress(OSError):
                server.trigger.pull_trigger(
                    lambda: server.asyncore.close_all(server._map)
                )
            thread.join()


def _application(connection: str, stack: ExitStack) -> Wsgi:
    conf = cfg.ConfigOpts()
    placement_conf.register_opts(conf)
    for group, name, value in (
        ('api', 'auth_strategy', 'noauth2'),
        # More than one try lets concurrent claims overfill a provider (it repeats
        # inside a stale snapshot), so the client is the one who repeats.
        ('placement', 'allocation_conflict_retry_count', 1),
        ('placement_database', 'connection', connection),
        ('placement_database', 'sync_on_startup', True),
        ('placement_database', 'sqlite_synchronous', False),
        ('placement_database', 'max_retries', 2),
        ('placement_database', 'retry_interval', 1),
    ):
        conf.set_override(name, value, group)
    # A project of its own: no file of an installed Placement is read.
    conf(
        [], project='novasched-sandbox', default_config_files=[], default_config_dirs=[]
    )
    database = {
        k: v for k, v in conf.placement_database.items() if k != 'sync_on_startup'
    }
    manager = enginefacade.transaction_context()
    manager.configure(**database)
    stack.callback(policy.reset)
    # A factory of our own in place of the global one, which starts only once.
    stack.callback(db_api.placement_context_manager.patch_factory(manager))
    stack.callback(manager.dispose_pool)
    # What an earlier server of this process has synchronised was another database.
    trait._TRAITS_SYNCED = False
    resource_class._RESOURCE_CLASSES_SYNCED = False
    application: Wsgi = deploy.loadapp(conf)
    return application


def _accept_token(application: Wsgi, token: str) -> Wsgi:
    """Answer 401 to any other token, as keystone's middleware would: noauth2 takes
    every token for a user. The root document, with the versions, stays public."""

    def guarded(
        environ: dict[str, Any], start_response: Callable[..., Any]
    ) -> Iterable[bytes]:
        given = environ.get('HTTP_X_AUTH_TOKEN', '')
        if environ.get('PATH_INFO') in ('', '/') or given == token:
            return application(environ, start_response)
        body = b'{"error": {"code": 401, "title": "Unauthorized"}}'
        headers = [
            ('Content-Type', 'application/json'),
            ('Content-Length', str(len(body))),
        ]
        start_response('401 Unauthorized', headers)
        return [body]

    return guarded
