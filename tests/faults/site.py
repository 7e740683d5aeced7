# SPDX-License-Identifier: Apache-2.0
"""A data centre with separate servers, so that any server can fail alone."""

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
    """The parts of keystone's v3 API that keystoneauth1 uses. Placement accepts the
    token that this keystone issues.

    :ivar tokens_issued: number of times that the token was issued.
    """

    def __init__(self):
        super().__init__()
        self.tokens_issued = 0
        self.url = f'http://{self.address}/v3'

    def reply(self, method, path, headers, body):
        if method == 'GET':
            version = {'id': 'v3.14', 'status': 'stable', 'links': []}
            return 200, JSON, json.dumps({'version': version}).encode()

        user = json.loads(body)['auth']['identity']['password']['user']
        if user['password'] != PASSWORD:
            error = {'code': 401, 'message': 'who are you?'}
            return 401, JSON, json.dumps({'error': error}).encode()

        self.tokens_issued += 1
        headers = {**JSON, 'X-Subject-Token': TOKEN}
        return 201, headers, json.dumps({'token': _token()}).encode()

    def options(self):
        """The options of a group of nova.conf that uses this keystone."""
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
    """The replies to the calls of this process, also to calls that have timed out.

    If a broker ends before the confirmation of a reply, oslo.messaging sends the same
    message again. The two messages have the same unique id, and count as one reply.

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
    """A clock that differs from the system clock by a number of seconds.

    :param directory: a new directory for the files of the clock.
    """

    def __init__(self, directory):
        directory.mkdir()
        (directory / 'sitecustomize.py').write_text(SLEEP)
        self._directory = directory
        self._path = directory / 'clock'
        self.jump(0)

    def jump(self, seconds):
        """Set the difference from the system clock, in seconds."""
        # A file that is renamed is never read half-written.
        new = self._path.with_suffix('.new')
        new.write_text(f'{seconds:+d}\n')
        new.rename(self._path)

    def environment(self):
        """The environment in which a process has this clock. The test is skipped if
        libfaketime cannot be installed. The monotonic clock stays as it is, as after a
        step of NTP."""
        path = [str(self._directory), os.environ.get('PYTHONPATH', '')]
        return {
            'PYTHONPATH': os.pathsep.join(filter(None, path)),
            'LD_PRELOAD': str(_library()),
            'FAKETIME_TIMESTAMP_FILE': str(self._path),
            'FAKETIME_CACHE_DURATION': '1',
            'FAKETIME_DONT_FAKE_MONOTONIC': '1',
        }


def _library():
    """The path of libfaketime, which is installed if it is missing."""
    paths = [*Path('/usr/lib').glob(LIBRARY)]
    if not paths:
        try:
            processes.install(PACKAGE)
        except pytest.fail.Exception as error:
            pytest.skip(str(error))
        paths = [*Path('/usr/lib').glob(LIBRARY)]
    return paths[0]


class Site(ExitStack):
    """The servers to which faults happen, and the cloud on these servers.

    :ivar mariadb: the database server of the API and of the first cell.
    :ivar second: the database server of the second cell.
    :ivar proxy: the proxy between schedulers and Placement.
    :ivar daemons: the running schedulers.
    """

    def __init__(self, nova, directory):
        super().__init__()
        self.daemons: Sequence[Daemon] = ()
        # If a server does not start, the stack ends the servers that run.
        with ExitStack() as stack:
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
        """The options of schedulers at this site, with overrides."""
        base: dict[str, dict[str, object]] = {
            # The computes are up, although no nova-compute reports.
            'DEFAULT': {'service_down_time': 1_000_000},
            'placement': {'endpoint': self.proxy.url},
            'novasched': {'cell_timeout': CELL_TIMEOUT},
        }
        return merged(base, overrides or {})

    @contextmanager
    def running(self, daemons=1, overrides=None, environment=None):
        """Run a number of schedulers on the same queue in a block."""
        config = self.config(overrides)
        with ExitStack() as stack:
            running = []
            for _ in range(daemons):
                daemon = Daemon(self.cloud, config, environment=environment)
                running.append(stack.enter_context(daemon))
            self.daemons = running
            try:
                yield self
            finally:
                self.daemons = ()

    def workers(self):
        """The worker processes of all schedulers."""
        workers = []
        for daemon in self.daemons:
            workers += psutil.Process(daemon.pid).children()
        return workers

    @contextmanager
    def frozen_workers(self):
        """Suspend the worker processes in a block."""
        frozen = self.workers()
        for worker in frozen:
            worker.suspend()
        try:
            yield
        finally:
            for worker in frozen:
                worker.resume()


class SchedulerPool:
    """Schedulers for several faults, as in data centres. A failed test, or a test with
    other arguments, stops the schedulers."""

    def __init__(self, site):
        self._site = site
        self._stack = ExitStack()
        self._arguments: object = None

    @contextmanager
    def running(self, *arguments):
        """Start schedulers unless the same schedulers run. They run on after the block.

        :param arguments: the arguments of :meth:`Site.running`.
        """
        if arguments != self._arguments:
            self.stop()
            self._stack.enter_context(self._site.running(*arguments))
            self._arguments = arguments
        try:
            yield
        except BaseException:
            self.stop()
            raise

    def stop(self):
        self._arguments = None
        self._stack.close()


def hosts():
    """Hosts in both cells that are large enough for all requests."""
    computes = []
    for number in range(HOSTS):
        compute = Compute(
            f'host-{number}',
            ('cell1', 'cell2')[number % 2],
            vcpus=1_000_000,
            ram_mb=500_000_000,
            disk_gb=10_000_000,
        )
        computes.append(compute)
    return computes
