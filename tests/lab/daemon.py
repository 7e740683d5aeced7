# SPDX-License-Identifier: Apache-2.0
"""A scheduler in a process of its own: the daemon's console script, or nova's; its
check; and nova's own client and other classes in a child process that is asked over a
pipe."""

import json
import os
import secrets
import selectors
import shlex
import subprocess
import sys
import time
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import pytest

from tests.lab import broker
from tests.lab.compute_rows import Flavor, Row
from tests.lab.descriptions import NOW
from tests.lab.nova_cloud import PROJECT, USER
from tests.lab.nova_release import ENVIRONMENT, write_config
from tests.lab.processes import START, Failed, Forked, Process, Service

SCHEDULER_VARIABLE = 'NOVASCHED_TEST_SCHEDULER'
MODULE = 'novasched.cmd.novasched'
CHECKED_AREAS = ('databases', 'Placement', 'aggregates', 'RabbitMQ')


def command_line():
    """The scheduler under test: the installed console script, or what the environment
    names (for instance nova's own nova-scheduler, to prove the tests)."""
    named = os.environ.get(SCHEDULER_VARIABLE)
    if named:
        return shlex.split(named)
    return [str(Path(sys.executable).parent / 'novasched')]


def is_reference():
    """Whether the scheduler under test is nova's own."""
    return Path(command_line()[0]).name == 'nova-scheduler'


class Daemon(Service):
    """A scheduler of this cloud under a host name that no other one ever had."""

    forked: ClassVar[bool] = False
    """Whether those of no particular command or environment are forks of a process that
    has imported the program, and not started by the console script."""

    def __init__(self, cloud, overrides=None, command=(), environment=None):
        # A name of its own: the consumer that a killed one leaves behind for a while
        # cannot be taken for this one.
        self.host = f'sched-{secrets.token_hex(4)}'
        self.config = cloud.config(self.host, overrides)
        self.log = self.config.with_suffix('.log')
        self._amqp_url = cloud.amqp_url
        self._command = [
            *(command or command_line()),
            '--config-file',
            str(self.config),
        ]
        self._environment = {**os.environ, **ENVIRONMENT, **(environment or {})}
        named = command or environment or SCHEDULER_VARIABLE in os.environ
        self._by_fork = self.forked and not named

    def text(self):
        return self.log.read_text(errors='replace')

    def start(self):
        """Start it; returns when it consumes the queue of its own host name, which it
        does after the common one."""
        process = self.launch()
        queue = f'{broker.TOPIC}.{self.host}'
        process.ready(
            lambda: broker.consumers(self._amqp_url, queue) > 0,
            START,
            f'consumer of {queue}',
        )

    def launch(self):
        # Captured by pytest, and shown with a test that fails.
        print(f'log of {self.host}: {self.log}')
        if self._by_fork:
            self._process = Forked(
                MODULE, self._command, self.log, env=self._environment
            )
        else:
            self._process = Process(self._command, self.log, env=self._environment)
        return self._process

    def run_to_end(self, seconds=START):
        """Start it and return the exit status with which it gives up by itself."""
        process = self.launch()
        try:
            return process.wait(seconds)
        finally:
            process.kill()

    def wait(self, seconds=START):
        """Its exit status, when it ends by itself."""
        return self.process.wait(seconds)


def checked(config):
    """What ``novaschedctl check`` says of the servers that a nova.conf names, {subject:
    (level, text)}."""
    command = [sys.executable, '-m', 'novasched.cmd.novaschedctl', 'check']
    done = subprocess.run(
        [*command, '--config-file', str(config), '--format', 'json', '--timeout', '60'],
        capture_output=True,
        text=True,
    )
    return {
        each['subject']: (each['level'], each['text'])
        for each in json.loads(done.stdout)['findings']
        if each['area'] in CHECKED_AREAS
    }


SCRIPT = Path(__file__).with_name('nova_client.py')
ANSWER = 180.0


class Refused(Exception):
    """The call raised on the client's side. The attributes say what was raised
    there."""

    def __init__(self, error):
        super().__init__(f'{error["module"]}.{error["error"]}: {error["message"]}')
        self.name: str = error['error']
        self.module: str = error['module']
        self.no_valid_host: bool = error['isinstance_NoValidHost']
        self.message: str = error['message']
        self.kwargs: dict[str, Any] | None = error['kwargs']
        # Of a RemoteError: the class and text of what the server raised.
        self.remote_type: str | None = error['exc_type']
        self.remote_value: str = error['value']


@dataclass
class Group:
    """A server group, as far as the conductor tells the scheduler of it."""

    policy: str
    rules: dict[str, str] = field(default_factory=dict)
    members: list[str] = field(default_factory=list)
    hosts: list[str] = field(default_factory=list)
    uuid: str = field(default_factory=lambda: str(uuid.uuid4()))


def new_uuids(count=1):
    return [str(uuid.uuid4()) for _ in range(count)]


CALL: Row = {
    'version': '4.5',
    'num_instances': None,
    'zone': None,
    'hints': {},
    'group': None,
    'image': {},
    'devices': (),
    'destination': {},
    'force_hosts': (),
    'force_nodes': (),
    'ignore_hosts': (),
    'retry': {},
    'is_bfv': False,
    'return_objects': True,
    'return_alternates': False,
    'project_id': PROJECT,
    'user_id': USER,
}
"""A call of select_destinations. ``hints`` have lists; ``group`` is a :class:`Group`,
``devices`` are fields of InstancePCIRequest, ``destination`` those of Destination, and
``retry`` those of SchedulerRetries, its hosts as pairs with their nodes."""


def a_call(instance_uuids, flavor, **asked):
    """A call of select_destinations, and what it has otherwise than :data:`CALL`."""
    assert asked.keys() <= CALL.keys(), asked
    said = {name: value for name, value in asked.items() if value is not None}
    call = {**CALL, 'instance_uuids': instance_uuids, 'flavor': _flavor(flavor), **said}
    if group := call['group']:
        # The user names the group by a hint; the API resolves it and leaves it there.
        call['hints'] = {'group': [group.uuid], **call['hints']}
        call['group'] = vars(group)
    return call


class NovaClient:
    """nova.scheduler.rpcapi.SchedulerAPI in nova's own Python; one call at a time."""

    def __init__(self, nova, config, script=SCRIPT):
        self._log = config.with_suffix('.client.log')
        with self._log.open('ab') as log:
            self._child = subprocess.Popen(
                [str(nova.python), str(script), str(config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env={**os.environ, **ENVIRONMENT, 'PYTHONPATH': str(SCRIPT.parent)},
                text=True,
                bufsize=1,
            )
        self._selector = selectors.DefaultSelector()
        self._requests = self._child.stdin
        self._answers = self._child.stdout
        self._selector.register(self._answers, selectors.EVENT_READ)
        self._number = 0
        self.receive(START)

    def close(self):
        self._selector.close()
        self._child.kill()
        self._child.communicate()

    def select_destinations(self, instance_uuids, flavor, *, timeout=ANSWER, **asked):
        """What the scheduler answers, objects as dicts; Refused when the call raises.

        4.5 gives a list of lists of selections (or of dicts, without return_objects); 4.4,
        4.3 and 4.0 go out in the form of that version and give a list of dicts. What may be
        asked for is :func:`a_call`'s.
        """
        return self(
            'select_destinations', timeout, **a_call(instance_uuids, flavor, **asked)
        )

    def chosen(self, *uuids, flavor=None, **asked):
        """The host of each instance: of a new one unless any is named."""
        found = self.select_destinations(
            uuids or new_uuids(), flavor or Flavor(), **asked
        )
        return [selections[0]['service_host'] for selections in found]

    def refusal(self, *uuids, flavor=None, **asked):
        """The text of the NoValidHost that is raised where :meth:`chosen` would have a
        host."""
        with pytest.raises(Refused) as caught:
            self.chosen(*uuids, flavor=flavor, **asked)
        assert caught.value.no_valid_host
        return caught.value.message

    def select_at_once(self, calls, threads):
        """What the scheduler answers to each of the calls (:func:`a_call`), which are
        made from so many threads; a Refused in the place of those that raise."""
        requests = [
            {'command': 'select_destinations', 'parameters': call} for call in calls
        ]
        found = self(
            'together', len(calls) * ANSWER, requests=requests, threads=threads
        )
        return [
            each['answer'] if 'answer' in each else Refused(each['error'])
            for each in found
        ]

    def land(self, numa_topology, flavor, count):
        """So many servers on a host, one after the other, by the code of nova-compute:
        the CPUs that each of them pins, and what the host reports then. Refused if one
        does not fit."""
        pins, left = self(
            'land', numa_topology=numa_topology, flavor=_flavor(flavor), count=count
        )
        return pins, left

    def raw_call(self, method, arguments, *, version='4.5', **how):
        """Call any method with arguments that are sent as they are; ``how`` are the
        namespace and the server of the target, and the seconds of the timeout."""
        how = {'namespace': None, 'server': None, 'timeout': 60, **how}
        return self(
            'raw_call', method=method, arguments=arguments, version=version, **how
        )

    def reached(self):
        """Every host that a small server may go to now."""
        hosts: set[str] = set()
        while True:
            try:
                [[found]] = self.select_destinations(
                    new_uuids(), Flavor(), ignore_hosts=sorted(hosts)
                )
            except Refused as error:
                if not error.no_valid_host:
                    raise
                return hosts
            hosts.add(found['service_host'])

    def ping(self, argument='hello', timeout=60):
        """The baseapi ping; the answer names the service and repeats the argument."""
        return self('ping', argument=argument, timeout=timeout)

    def __call__(self, command, patience=ANSWER, /, **parameters):
        """Run a command of the child's; Refused when nova's own code raises there."""
        self.send(command, **parameters)
        return self.receive(patience)

    def send(self, command, /, **parameters):
        self._number += 1
        request = {'number': self._number, 'command': command, 'parameters': parameters}
        self._requests.write(json.dumps(request) + '\n')

    def receive(self, seconds):
        deadline = time.monotonic() + seconds
        reply = dict[str, Any]()
        # An answer that nobody waited for any more is not the next one's answer.
        while reply.get('number') != self._number:
            reply = self._line(deadline)
        if 'error' in reply:
            raise Refused(reply['error'])
        return reply['answer']

    def _line(self, deadline):
        # One line for one request, read as soon as it is there, so that nothing can
        # wait unseen in Python's own buffer.
        left = max(0.0, deadline - time.monotonic())
        line = self._answers.readline() if self._selector.select(left) else ''
        if not line:
            last = '\n'.join(self._log.read_text(errors='replace').splitlines()[-25:])
            raise Failed(f"nova's client does not answer in time:\n{last}")
        return json.loads(line)


def _flavor(flavor):
    return {
        'id': 1,
        'flavorid': 'functional',
        'name': 'functional',
        'vcpus': flavor.vcpus,
        'memory_mb': flavor.ram_mb,
        'root_gb': flavor.disk_gb,
        'ephemeral_gb': flavor.ephemeral_gb,
        'swap': flavor.swap_mb,
        'rxtx_factor': 1.0,
        'vcpu_weight': 0,
        'disabled': False,
        'is_public': True,
        'extra_specs': flavor.extra_specs,
        'description': None,
    }


PATIENCE = 600.0  # seconds


class Nova(NovaClient):
    """A child process, which may be asked while we answer the same question.

    :param directory: where its log goes
    :param script: its commands take a case and return a JSON value, as in tests/parity
    """

    def __init__(self, release, directory, script):
        config = write_config(directory / f'{script.stem}.conf', {})
        super().__init__(release, config, script)

    def ask(self, command, cases, patience=PATIENCE):
        self.put(command, cases)
        return self.answers(patience)

    def put(self, command, cases):
        """Ask, and do not wait for the answers."""
        self.send('answers', now=NOW.isoformat(), do=command, cases=cases)

    def answers(self, patience=PATIENCE):
        """:raises Failed: they do not come in time."""
        return self.receive(patience)
