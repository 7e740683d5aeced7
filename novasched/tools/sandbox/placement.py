# SPDX-License-Identifier: Apache-2.0
"""The real openstack-placement application on a loopback port.

For the sandbox and for tests: without keystone, with one accepted token, on any
database of SQLAlchemy's.
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
    """Run Placement until the end of the block. The value is Placement's URL.

    The schema is created, and the database stays. A process can run one Placement at a
    time.

    :raises RuntimeError: this process already runs a Placement.
    """
    if not _one_at_a_time.acquire(blocking=False):
        raise RuntimeError('this process already runs a Placement')
    with ExitStack() as stack:
        stack.callback(_one_at_a_time.release)
        # SQLite has one writer. A transaction that has read before another writer
        # commits fails with 'database is locked' at once, and Placement does not repeat
        # the transaction. One thread avoids this; connections are still kept alive.
        threads = 1 if connection.startswith('sqlite') else 8
        server = waitress.create_server(
            _accept_token(_application(connection, stack), token),
            host='127.0.0.1',
            port=port,
            threads=threads,
        )
        # Requests that wait for a thread are normal here, so waitress need not warn.
        logging.getLogger('waitress.queue').setLevel(logging.ERROR)
        thread = threading.Thread(target=server.run, name='placement', daemon=True)
        thread.start()
        try:
            yield f'http://127.0.0.1:{server.effective_port}'
        finally:
            server.task_dispatcher.shutdown()
            # Only the thread of the loop may close its sockets. An answer that ends at
            # this moment wakes the loop, too, and all sockets are closed already.
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
        # Placement repeats a claim within a stale snapshot of the database, so that
        # concurrent claims can overfill a provider. The client repeats instead.
        ('placement', 'allocation_conflict_retry_count', 1),
        ('placement_database', 'connection', connection),
        ('placement_database', 'sync_on_startup', True),
        ('placement_database', 'sqlite_synchronous', False),
        ('placement_database', 'max_retries', 2),
        ('placement_database', 'retry_interval', 1),
    ):
        conf.set_override(name, value, group)
    # With another project name, no file of an installed Placement is read.
    conf(
        [], project='novasched-sandbox', default_config_files=[], default_config_dirs=[]
    )

    database = dict(conf.placement_database.items())
    # An option of Placement, unknown to oslo.db.
    del database['sync_on_startup']
    manager = enginefacade.transaction_context()
    manager.configure(**database)
    stack.callback(policy.reset)
    # The global factory starts only once in a process.
    stack.callback(db_api.placement_context_manager.patch_factory(manager))
    stack.callback(manager.dispose_pool)
    # An earlier server of this process has synchronised another database.
    trait._TRAITS_SYNCED = False
    resource_class._RESOURCE_CLASSES_SYNCED = False
    application: Wsgi = deploy.loadapp(conf)
    return application


def _accept_token(application: Wsgi, token: str) -> Wsgi:
    """Answer 401 to all tokens except one, like keystone's middleware. Placement's
    noauth2 accepts every token. The root document with the versions stays public."""

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
