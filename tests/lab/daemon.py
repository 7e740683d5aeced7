# SPDX-License-Identifier: Apache-2.0
"""Schedulers as processes, ``novaschedctl check``, and nova's client and other classes
of nova in a child process that takes commands over a pipe."""

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
from tests.lab.compute_rows import FLAVOR_ID, Flavor, Row
from tests.lab.descriptions import NOW
from tests.lab.nova_cloud import PROJECT, USER
from tests.lab.nova_release import ENVIRONMENT, write_config
from tests.lab.processes import START, Failed, Forked, Process, Service

SCHEDULER_VARIABLE = 'NOVASCHED_TEST_SCHEDULER'
MODULE = 'novasched.cmd.novasched'
CHECK_MODULE = 'novasched.cmd.novaschedctl'
CHECKED_AREAS = ('databases', 'Placement', 'aggregates', 'RabbitMQ')


def command_line():
    """The command of the scheduler under test: the installed console script, or the
    command in the environment (for instance nova-scheduler, to prove the tests)."""
    named = os.environ.get(SCHEDULER_VARIABLE)
    if named:
        return shlex.split(named)
    return [str(Path(sys.executable).parent / 'novasched')]


def is_reference():
    """True if the scheduler under test is nova-scheduler."""
    return Path(command_line()[0]).name == 'nova-scheduler'


class Daemon(Service):
    """A scheduler of a cloud under a new host name.

    :param overrides: options that differ from the options of the cloud.
    :param command: another command than :func:`command_line`.
    :param environment: additional environment variables.
    """

    forked: ClassVar[bool] = False
    """Start schedulers as forks of a process that has imported the program, unless a
    command or an environment is given."""

    def __init__(self, cloud, overrides=None, command=(), environment=None):
        # With a new name, the consumer that a killed scheduler leaves behind for a while
        # is not taken for the consumer of this scheduler.
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
        """Start the scheduler, and wait until it consumes the queue of its host name.
        The scheduler consumes the common queue earlier."""
        process = self.launch()
        queue = f'{broker.TOPIC}.{self.host}'
        process.ready(
            lambda: broker.consumers(self._amqp_url, queue) > 0,
            START,
            f'consumer of {queue}',
        )

    def launch(self):
        # pytest prints the line with a test that fails.
        print(f'log of {self.host}: {self.log}')
        if self._by_fork:
            self._process = Forked(
                MODULE, self._command, self.log, env=self._environment
            )
        else:
            self._process = Process(self._command, self.log, env=self._environment)
        return self._process

    def run_to_end(self, seconds=START):
        """Start a scheduler that gives up by itself; the exit status."""
        process = self.launch()
        try:
            return process.wait(seconds)
        finally:
            process.kill()

    def wait(self, seconds=START):
        """Wait until the scheduler ends by itself; the exit status."""
        return self.process.wait(seconds)


def findings_of_check(config):
    """Run ``novaschedctl check`` with a nova.conf in a process of its own; the exit
    status, and the findings in JSON."""
    log = config.with_suffix('.check')
    log.unlink(missing_ok=True)
    command = ['novaschedctl', 'check', '--config-file', str(config)]
    command += ['--format', 'json', '--timeout', '60']
    process = Forked(CHECK_MODULE, command, log, env=os.environ)
    status = process.wait(START)
    return status, json.loads(process.text())['findings']


def checked(config):
    """The findings of ``novaschedctl check`` about the servers in a nova.conf: level and
    text by subject."""
    _, all_findings = findings_of_check(config)
    findings = {}
    for finding in all_findings:
        if finding['area'] in CHECKED_AREAS:
            findings[finding['subject']] = (finding['level'], finding['text'])
    return findings


SCRIPT = Path(__file__).with_name('nova_client.py')
ANSWER = 180.0


class Refused(Exception):
    """The error of a call in nova's client.

    :ivar name: the class of the error.
    :ivar remote_type: the class of the error in the server, of a RemoteError.
    :ivar remote_value: the text of the error in the server, of a RemoteError.
    """

    def __init__(self, error):
        super().__init__(f'{error["module"]}.{error["error"]}: {error["message"]}')
        self.name: str = error['error']
        self.module: str = error['module']
        self.no_valid_host: bool = error['isinstance_NoValidHost']
        self.message: str = error['message']
        self.kwargs: dict[str, Any] | None = error['kwargs']
        self.remote_type: str | None = error['exc_type']
        self.remote_value: str = error['value']


@dataclass
class Group:
    """The fields of a server group that the conductor sends to the scheduler."""

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
``devices`` have fields of InstancePCIRequest, ``destination`` has fields of Destination,
and ``retry`` has fields of SchedulerRetries, with pairs of host and node."""


def a_call(instance_uuids, flavor, **differences):
    """A call of select_destinations that differs from :data:`CALL`."""
    assert differences.keys() <= CALL.keys(), differences
    call = {**CALL, 'instance_uuids': instance_uuids, 'flavor': _flavor(flavor)}
    for name, value in differences.items():
        if value is not None:
            call[name] = value

    if group := call['group']:
        # The user names the group in a hint, which nova-api resolves and keeps.
        call['hints'] = {'group': [group.uuid], **call['hints']}
        call['group'] = vars(group)
    return call


class NovaClient:
    """nova.scheduler.rpcapi.SchedulerAPI in nova's virtualenv, for one call at a
    time."""

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

    def select_destinations(
        self, instance_uuids, flavor, *, timeout=ANSWER, **differences
    ):
        """The answer of the scheduler, with objects as dicts.

        The answer of version 4.5 is a list of lists of selections (or of dicts, without
        return_objects). The answer of versions 4.4, 4.3 and 4.0 is a list of dicts.

        :param differences: see :func:`a_call`.
        :raises Refused: the call fails.
        """
        call = a_call(instance_uuids, flavor, **differences)
        return self('select_destinations', timeout, **call)

    def chosen(self, *uuids, flavor=None, **differences):
        """The host of each instance, by default of a new instance."""
        selections = self.select_destinations(
            uuids or new_uuids(), flavor or Flavor(), **differences
        )
        return [row[0]['service_host'] for row in selections]

    def refusal(self, *uuids, flavor=None, **differences):
        """The text of the NoValidHost that :meth:`chosen` raises."""
        with pytest.raises(Refused) as caught:
            self.chosen(*uuids, flavor=flavor, **differences)
        assert caught.value.no_valid_host
        return caught.value.message

    def select_at_once(self, calls, threads):
        """The answers to calls from several threads, with a Refused for a call that
        fails.

        :param calls: see :func:`a_call`.
        :param threads: number of threads.
        """
        requests = []
        for call in calls:
            requests.append({'command': 'select_destinations', 'parameters': call})
        replies = self(
            'together', len(calls) * ANSWER, requests=requests, threads=threads
        )

        answers = []
        for reply in replies:
            if 'answer' in reply:
                answers.append(reply['answer'])
            else:
                answers.append(Refused(reply['error']))
        return answers

    def land(self, numa_topology, flavor, count):
        """Let servers arrive on a host in turn, by the code of nova-compute.

        :returns: the pinned CPUs of each server, and the topology that the host reports
            afterwards.
        :raises Refused: a server does not fit.
        """
        pins, reported = self(
            'land', numa_topology=numa_topology, flavor=_flavor(flavor), count=count
        )
        return pins, reported

    def raw_call(self, method, arguments, *, version='4.5', **options):
        """Call any method with arguments that are sent as they are.

        :param options: ``namespace`` and ``server`` of the target, and ``timeout``.
        """
        options = {'namespace': None, 'server': None, 'timeout': 60, **options}
        return self(
            'raw_call', method=method, arguments=arguments, version=version, **options
        )

    def reached(self):
        """All hosts to which a small server may go now."""
        hosts: set[str] = set()
        while True:
            try:
                [[selection]] = self.select_destinations(
                    new_uuids(), Flavor(), ignore_hosts=sorted(hosts)
                )
            except Refused as error:
                if not error.no_valid_host:
                    raise
                return hosts
            hosts.add(selection['service_host'])

    def ping(self, argument='hello', timeout=60):
        """The baseapi ping: the answer names the service and repeats the argument."""
        return self('ping', argument=argument, timeout=timeout)

    def __call__(self, command, patience=ANSWER, /, **parameters):
        """Run a command in the child.

        :param patience: seconds to wait for the answer.
        :raises Refused: nova's code raises an error.
        """
        self.send(command, **parameters)
        return self.receive(patience)

    def send(self, command, /, **parameters):
        self._number += 1
        request = {'number': self._number, 'command': command, 'parameters': parameters}
        self._requests.write(json.dumps(request) + '\n')

    def receive(self, seconds):
        deadline = time.monotonic() + seconds
        reply = dict[str, Any]()
        # An answer that came too late belongs to an earlier command.
        while reply.get('number') != self._number:
            reply = self._line(deadline)
        if 'error' in reply:
            raise Refused(reply['error'])
        return reply['answer']

    def _line(self, deadline):
        # A request has one line for an answer. Python's buffer is empty before a line is
        # read, so that select() sees every line.
        line = ''
        if self._selector.select(max(0.0, deadline - time.monotonic())):
            line = self._answers.readline()
        if not line:
            last = '\n'.join(self._log.read_text(errors='replace').splitlines()[-25:])
            raise Failed(f"nova's client does not answer in time:\n{last}")
        return json.loads(line)


def _flavor(flavor):
    return {
        'id': FLAVOR_ID,
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
    """A child process that works on cases while the tests work on the same cases.

    :param directory: the directory for its log.
    :param script: a script whose commands take a case and return a JSON value, as in
        tests/parity.
    """

    def __init__(self, release, directory, script):
        config = write_config(directory / f'{script.stem}.conf', {})
        super().__init__(release, config, script)

    def ask(self, command, cases, patience=PATIENCE):
        self.put(command, cases)
        return self.answers(patience)

    def put(self, command, cases):
        """Send cases without waiting for the answers."""
        self.send('answers', now=NOW.isoformat(), do=command, cases=cases)

    def answers(self, patience=PATIENCE):
        """The answers to the cases that were sent.

        :raises Failed: the answers do not come in time.
        """
        return self.receive(patience)
