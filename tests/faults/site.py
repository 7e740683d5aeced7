# SPDX-License-Identifier: Apache-2.0
"""A data centre: each server of its own, so that each can fail alone."""

import json
import os
from collections import defaultdict
from collections.abc import Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import pytest
from oslo_messaging._drivers.amqp import UNIQUE_ID
from oslo_messaging._drivers.amqpdriver import ReplyWaiter

from tests.lab import placement_api, processes, servers
from tests.lab.compute_rows import Compute
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import NovaCloud
from tests.lab.nova_release import merged
from tests.lab.placement_api import TOKEN
from tests.lab.proxy import JSON, HttpStub, Proxy
from tests.lab.rpc_load import Caller

USER = 'novasched'
PASSWORD = 'a-word-that-nobody-may-read'


class Keystone(HttpStub):
    """The v3 API, as far as keystoneauth1 looks at it.

    The token is the one that Placement takes. ``given`` is how often it was given, and
    ``expired`` is true until it is given anew.
    """

    def __init__(self):
        super().__init__()
        self.given = 0
        self.expired = False
        self.url = f'http://{self.address}/v3'

    def reply(self, method, path, headers, body):
        if method == 'GET':
            version = {'id': 'v3.14', 'status': 'stable', 'links': []}
            return 200, JSON, json.dumps({'version': version}).encode()
        user = json.loads(body)['auth']['identity']['password']['user']
        if user['password'] != PASSWORD:
            error = {'code': 401, 'message': 'who are you?'}
            return 401, JSON, json.dumps({'error': error}).encode()
        self.given += 1
        self.expired = False
        return (
            201,
            {**JSON, 'X-Subject-Token': TOKEN},
            json.dumps({'token': _token()}).encode(),
        )

    def options(self):
        """What a group of nova.conf says to use it."""
        return {
            'auth_type': 'v3password',
            'auth_url': self.url,
            'username': USER,
            'password': PASSWORD,
            'user_domain_name': 'Default',
            'project_name': 'service',
            'project_domain_name': 'Default',
        }


def _token():
    domain = {'id': 'default', 'name': 'Default'}
    return {
        'methods': ['password'],
        'user': {'id': 'u', 'name': USER, 'domain': domain},
        'project': {'id': 'p', 'name': 'service', 'domain': domain},
        'roles': [{'id': 'r', 'name': 'service'}],
        'catalog': [],
        'audit_ids': ['x'],
        'issued_at': '2026-01-01T00:00:00.000000Z',
        'expires_at': '2096-01-01T00:00:00.000000Z',
    }


HOSTS = 20
CELL_TIMEOUT = 3

PACKAGE = 'libfaketime'
LIBRARY = '*/faketime/libfaketimeMT.so.1'

# libfaketime 0.9.10 makes clock_nanosleep() fail when it leaves the monotonic clock
# alone.
SLEEP = """
import select, time
time.sleep = lambda seconds: select.select([], [], [], seconds) and None
"""


class Replies:
    """The replies to the calls of this process, also to calls that nobody waits for.

    A broker that ends before it confirms a reply makes oslo.messaging send the same
    message again. Such a message counts as one reply: its unique id is the same.

    :ivar by_call: the unique ids of the replies to each call.
    """

    def __init__(self):
        self.by_call = defaultdict(set)

    @contextmanager
    def counted(self):
        """Look at each message that the client of oslo.messaging receives."""
        receive = ReplyWaiter.__call__

        def note(waiter, message):
            if message.get('ending'):
                self.by_call[message['_msg_id']].add(message[UNIQUE_ID])
            receive(waiter, message)

        ReplyWaiter.__call__ = note
        try:
            yield self
        finally:
            ReplyWaiter.__call__ = receive

    def clear(self):
        self.by_call.clear()


class Clock:
    """The system's, and so many seconds more."""

    def __init__(self, directory):
        directory.mkdir()
        (directory / 'sitecustomize.py').write_text(SLEEP)
        self._directory = directory
        self._path = directory / 'clock'
        self.jump(0)

    def jump(self, seconds):
        """Be so far ahead of the system's from now on."""
        # Renamed into place: nobody reads half of it.
        new = self._path.with_suffix('.new')
        new.write_text(f'{seconds:+d}\n')
        new.rename(self._path)

    def environment(self):
        """What makes a process see it; the test is skipped where the library is not to
        be had. As when NTP steps a clock, the one that only measures goes on as it
        is."""
        path = [str(self._directory), os.environ.get('PYTHONPATH', '')]
        return {
            'PYTHONPATH': os.pathsep.join(filter(None, path)),
            'LD_PRELOAD': str(_library()),
            'FAKETIME_TIMESTAMP_FILE': str(self._path),
            'FAKETIME_CACHE_DURATION': '1',
            'FAKETIME_DONT_FAKE_MONOTONIC': '1',
        }


def _library():
    if not (found := [*Path('/usr/lib').glob(LIBRARY)]):
        try:
            processes.install(PACKAGE)
        except pytest.exit.Exception as error:
            pytest.skip(str(error))
        found = [*Path('/usr/lib').glob(LIBRARY)]
    return found[0]


class Site(ExitStack):
    """What faults happen to. The second cell has a database server of its own; all else
    is on the first. Schedulers reach Placement through the proxy."""

    def __init__(self, nova, directory):
        super().__init__()
        self.daemons: Sequence[Daemon] = ()
        with (
            ExitStack() as stack
        ):  # which ends what runs if something else does not start
            enter = stack.enter_context
            self.rabbitmq = enter(servers.RabbitMQ())
            self.mariadb = enter(servers.MariaDB())
            self.second = enter(servers.MariaDB())
            self.placement = enter(placement_api.placement(self.mariadb.url, directory))
            self.proxy = enter(Proxy(self.placement.url))
            self.cloud = NovaCloud(
                nova,
                directory,
                amqp_url=self.rabbitmq.url,
                database_url=self.mariadb.url,
                placement_url=self.placement.url,
                elsewhere={'cell2': self.second.url},
            )
            stack.callback(self.cloud.disconnect)
            self.cloud.add_hosts(hosts())
            self.keystone = enter(Keystone())
            self.clock = Clock(directory / 'clock')
            self.caller = enter(Caller(self.cloud.config('caller')))
            self.replies = enter(Replies().counted())
            self.push(stack.pop_all())

    def config(self, overrides=None):
        """What schedulers have in nova.conf here; overrides win."""
        base: dict[str, dict[str, object]] = {
            # Nobody reports for the computes, which shall be up all the time.
            'DEFAULT': {'service_down_time': 1_000_000},
            'placement': {'endpoint': self.proxy.url},
            'novasched': {'cell_timeout': CELL_TIMEOUT},
        }
        return merged(base, overrides or {})

    @contextmanager
    def running(self, daemons=1, overrides=None, environment=None):
        """So many schedulers share the queue, until the end of the block."""
        config = self.config(overrides)
        with ExitStack() as stack:
            self.daemons = [
                stack.enter_context(Daemon(self.cloud, config, environment=environment))
                for _ in range(daemons)
            ]
            try:
                yield self
            finally:
                self.daemons = ()

    def workers(self):
        return [
            worker
            for daemon in self.daemons
            for worker in psutil.Process(daemon.pid).children()
        ]

    @contextmanager
    def frozen_workers(self):
        frozen = self.workers()
        for each in frozen:
            each.suspend()
        try:
            yield
        finally:
            for each in frozen:
                each.resume()


class Crew:
    """Schedulers that stay from one fault to the next, as they do in data centres:
    while the same ones are wanted, and no test fails."""

    def __init__(self, site):
        self._site = site
        self._stack = ExitStack()
        self._wanted: object = None

    @contextmanager
    def of(self, *wanted):
        """Those that :meth:`Site.running` starts; they stay after the block."""
        if wanted != self._wanted:
            self.dismiss()
            self._stack.enter_context(self._site.running(*wanted))
            self._wanted = wanted
        try:
            yield
        except BaseException:
            self.dismiss()
            raise

    def dismiss(self):
        self._wanted = None
        self._stack.close()


def hosts():
    """Hosts without end in both cells."""
    return [
        Compute(
            f'host-{number}', ('cell1', 'cell2')[number % 2],
            vcpus=1_000_000, ram_mb=500_000_000, disk_gb=10_000_000,
        )
        for number in range(HOSTS)
    ]  # fmt: skip
