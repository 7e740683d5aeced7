# SPDX-License-Identifier: Apache-2.0
"""The tests' side of nova's own client: a child process that is asked over a pipe."""

import json
import os
import selectors
import subprocess
import time
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .compute_rows import Flavor, Row
from .nova_cloud import PROJECT, USER
from .nova_release import ENVIRONMENT, NovaRelease
from .processes import Failed

SCRIPT = Path(__file__).with_name('nova_client.py')
START = 60.0
ANSWER = 180.0


class Refused(Exception):
    """The call raised on the client's side. The attributes say what was raised there."""

    def __init__(self, error: Mapping[str, Any]) -> None:
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


def new_uuids(count: int = 1) -> list[str]:
    return [str(uuid.uuid4()) for _ in range(count)]


CALL: Row = {
    'version': '4.5', 'num_instances': None, 'zone': None, 'hints': {}, 'group': None,
    'image': {}, 'devices': (), 'destination': {}, 'force_hosts': (), 'force_nodes': (),
    'ignore_hosts': (), 'is_bfv': False, 'return_objects': True, 'return_alternates': False,
    'project_id': PROJECT, 'user_id': USER,
}  # fmt: skip
"""A call of select_destinations. ``hints`` have lists; ``group`` is a :class:`Group`, ``devices``
are fields of InstancePCIRequest, and ``destination`` those of Destination."""


def a_call(instance_uuids: Sequence[str] | None, flavor: Flavor, **asked: Any) -> Row:
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

    def __init__(self, nova: NovaRelease, config: Path, script: Path = SCRIPT) -> None:
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
        assert self._child.stdin is not None
        assert self._child.stdout is not None
        self._requests, self._answers = self._child.stdin, self._child.stdout
        self._selector.register(self._answers, selectors.EVENT_READ)
        self._number = 0
        self.receive(START)

    def close(self) -> None:
        self._selector.close()
        self._child.kill()
        self._child.communicate()

    def select_destinations(
        self,
        instance_uuids: Sequence[str] | None,
        flavor: Flavor,
        *,
        timeout: float = ANSWER,
        **asked: Any,
    ) -> Any:
        """What the scheduler answers, objects as dicts; Refused when the call raises.

        4.5 gives a list of lists of selections (or of dicts, without return_objects); 4.4,
        4.3 and 4.0 go out in the form of that version and give a list of dicts. What may be
        asked for is :func:`a_call`'s.
        """
        return self('select_destinations', timeout, **a_call(instance_uuids, flavor, **asked))

    def chosen(self, *uuids: str, flavor: Flavor | None = None, **asked: Any) -> list[str]:
        """The host of each instance: of a new one unless any is named."""
        found = self.select_destinations(uuids or new_uuids(), flavor or Flavor(), **asked)
        return [selections[0]['service_host'] for selections in found]

    def select_at_once(self, calls: Sequence[Row], threads: int) -> list[Any]:
        """What the scheduler answers to each of the calls (:func:`a_call`), which are made from
        so many threads; a Refused in the place of those that raise."""
        requests = [{'command': 'select_destinations', 'parameters': call} for call in calls]
        found = self('together', len(calls) * ANSWER, requests=requests, threads=threads)
        return [each['answer'] if 'answer' in each else Refused(each['error']) for each in found]

    def land(self, numa_topology: str, flavor: Flavor, count: int) -> tuple[list[list[int]], str]:
        """So many servers on a host, one after the other, by the code of nova-compute: the CPUs
        that each of them pins, and what the host reports then. Refused if one does not fit."""
        pins, left = self('land', numa_topology=numa_topology, flavor=_flavor(flavor), count=count)
        return pins, left

    def raw_call(
        self, method: str, arguments: Mapping[str, Any], *, version: str = '4.5', **how: Any
    ) -> Any:
        """Call any method with arguments that are sent as they are; ``how`` are the namespace and
        the server of the target, and the seconds of the timeout."""
        how = {'namespace': None, 'server': None, 'timeout': 60, **how}
        return self('raw_call', method=method, arguments=arguments, version=version, **how)

    def reached(self) -> set[str]:
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

    def ping(self, argument: str = 'hello', timeout: float = 60) -> Any:
        """The baseapi ping; the answer names the service and repeats the argument."""
        return self('ping', argument=argument, timeout=timeout)

    def __call__(self, command: str, patience: float = ANSWER, /, **parameters: Any) -> Any:
        """Run a command of the child's; Refused when nova's own code raises there."""
        self.send(command, **parameters)
        return self.receive(patience)

    def send(self, command: str, /, **parameters: Any) -> None:
        self._number += 1
        request = {'number': self._number, 'command': command, 'parameters': parameters}
        self._requests.write(json.dumps(request) + '\n')

    def receive(self, seconds: float) -> Any:
        deadline, reply = time.monotonic() + seconds, dict[str, Any]()
        # An answer that nobody waited for any more is not the next one's answer.
        while reply.get('number') != self._number:
            reply = self._line(deadline)
        if 'error' in reply:
            raise Refused(reply['error'])
        return reply['answer']

    def _line(self, deadline: float) -> dict[str, Any]:
        # One line for one request, read as soon as it is there, so that nothing can wait
        # unseen in Python's own buffer.
        left = max(0.0, deadline - time.monotonic())
        line = self._answers.readline() if self._selector.select(left) else ''
        if not line:
            last = '\n'.join(self._log.read_text(errors='replace').splitlines()[-25:])
            raise Failed(f"nova's client does not answer in time:\n{last}")
        reply: dict[str, Any] = json.loads(line)
        return reply


def _flavor(flavor: Flavor) -> dict[str, Any]:
    return {
        'id': 1, 'flavorid': 'functional', 'name': 'functional', 'vcpus': flavor.vcpus,
        'memory_mb': flavor.ram_mb, 'root_gb': flavor.disk_gb, 'ephemeral_gb': flavor.ephemeral_gb,
        'swap': flavor.swap_mb, 'rxtx_factor': 1.0, 'vcpu_weight': 0, 'disabled': False,
        'is_public': True, 'extra_specs': flavor.extra_specs, 'description': None,
    }  # fmt: skip
