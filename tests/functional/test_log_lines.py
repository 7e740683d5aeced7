# SPDX-License-Identifier: Apache-2.0
"""The log lines that operators search for, of nova-scheduler and of novasched for the
same requests."""

import copy
import re
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass

import pytest

from tests.lab import conductor_requests
from tests.lab.daemon import Daemon
from tests.lab.nova_cloud import NovaCloud
from tests.lab.proxy import Proxy
from tests.lab.rpc_load import Caller
from tests.lab.wire import CALLS, context_of

LINE = re.compile(
    r'\S+ \S+ \d+ (?P<level>[A-Z]+) (?P<logger>\S+) \[[^]]*\] (?P<text>.*)'
)
STARTS = (
    'Filter ',
    'Filtering removed all hosts',
    'Starting with',
    'Starting to schedule',
    'Filtered ',
    'Weighed ',
    'Selected host',
    'Unable to success',
    'Got no allocation candidates',
    'Requesting fallback',
    'There are ',
    'Cleaning up',
    'Attempting to claim',
    'There is more than one',
    'At least one',
    'Invalid group_policy',
    'Host filter',
    'No hosts matched',
    'No nodes matched',
    'No compute service record',
    'Timeout getting',
    'Failed to get computes',
    'Deleted allocations',
)
"""Beginnings of the compared lines."""
CANDIDATES = re.compile(r', allocation_candidates: \d+')
"""nova logs the number of a host's candidates. The number may be large, and does not
depend on the host."""
INSTANCE = re.compile(r'^\[instance: [^]]*\] ')
"""Prefix of the text in a line about a single server."""
HOST = re.compile(r'\([^()]*\)[^(\]]*(?=,|\])')
"""A host in the line that lists the remaining hosts. nova's order is the order of a
set."""
DETAILS = ('DEBUG', 'Filtering')
"""nova lists the hosts that passed the filters. novasched logs at INFO why the last
hosts were rejected."""
WEIGHT = re.compile(r'(?<=weight: )[^]]+')
"""A sum, whose last digit depends on the order of the addends."""
FIRST_WORDS = (
    'There is more than one numbered request group in the allocation candidate query',
)
"""Lines to which nova adds advice."""
CELL = re.compile(r'^(Failed to get computes for cell \S+):.*')
"""A line to which novasched adds the reason."""
TOGETHER = ('Selected host', 'Cleaning up', 'Deleted allocations')
"""novasched claims for all servers of a request together, after all servers have hosts.
The hosts are logged last. If a server finds no host, there are no hosts to log and no
allocations to delete."""
BEST = conductor_requests.HOSTS[-1]
BIG = 262000  # MiB, of the 262144 that the best host has


@dataclass(frozen=True)
class Scheduler:
    """A scheduler and its log."""

    daemon: Daemon
    between: Proxy
    caller: Caller
    cloud: NovaCloud

    def lines(self, arguments, happens):
        """The compared lines of the log for a request.

        :param happens: called after Placement has answered with candidates, or None.
        """
        before = len(self.daemon.text())
        due = [happens] if happens else []

        def hear(_method, path, *_rest):
            if due and path.startswith('/allocation_candidates'):
                due.pop()()

        self.between.heard = hear
        self.caller.select(self.daemon.host, arguments, context_of(CALLS['boot']))
        self.between.heard = None

        for server in self.cloud.all_allocations():
            self.cloud.placement.release(server)
        lines = map(_line, self.daemon.text()[before:].splitlines())
        return [line for line in lines if line]


def _line(text):
    """Logger, level and normalised text of a line; None if the line is not compared."""
    match = LINE.match(text)
    if match is None:
        return None

    message = CANDIDATES.sub('', match['text']).rstrip()
    for start in FIRST_WORDS:
        if message.startswith(start):
            message = start
    message = WEIGHT.sub(lambda weight: f'{float(weight[0]):.9g}', message)
    message = CELL.sub(r'\1', message)
    if message.startswith('Filtered '):
        message = f'Filtered {sorted(HOST.findall(message))}'

    if (match['level'], message[:9]) == DETAILS:
        return None
    if not INSTANCE.sub('', message).startswith(STARTS):
        return None
    return match['logger'], match['level'], message


@pytest.fixture(scope='module')
def pair(cloud):
    """nova-scheduler and novasched on the same furnished cloud, with debugging on."""
    conductor_requests.furnish(cloud)
    with ExitStack() as stack:
        caller = stack.enter_context(Caller(cloud.config('caller')))
        schedulers = []
        for command in ([cloud.nova.script('nova-scheduler')], []):
            between = stack.enter_context(Proxy(cloud.placement_url))
            config = {
                'DEFAULT': {'debug': True, 'logging_debug_format_suffix': ''},
                'filter_scheduler': {
                    'enabled_filters': ','.join(conductor_requests.FILTERS)
                },
                'placement': {'endpoint': between.url},
                # A refusal on an earlier answer of Placement is decided a second time,
                # and logged a second time.
                'novasched': {'in_flight_timeout': 0, 'candidates_max_age': 0},
            }
            daemon = stack.enter_context(Daemon(cloud, config, command))
            schedulers.append(Scheduler(daemon, between, caller, cloud))
        yield schedulers


def _flavor(**fields):
    return {'flavor': conductor_requests.a_flavor(**fields)}


CASES = {
    'placed': conductor_requests.changed('boot', {}),
    'no candidates': conductor_requests.changed('boot', _flavor(memory_mb=2**30)),
    'all are filtered': conductor_requests.changed(
        'boot', _flavor(extra_specs={'capabilities:hypervisor_type': 'none'})
    ),
    'forced': conductor_requests.changed(
        'boot', {'force_hosts': [conductor_requests.HOSTS[1]]}
    ),
    'forced to what is no candidate': conductor_requests.changed(
        'boot',
        {
            'force_hosts': [conductor_requests.HOSTS[0], conductor_requests.HOSTS[1]],
            **_flavor(memory_mb=200000),
        },
    ),
    'forced node': conductor_requests.changed(
        'boot', {'force_nodes': [conductor_requests.HOSTS[1]]}
    ),
    'ignored': conductor_requests.changed(
        'boot',
        {
            'ignore_hosts': [
                'unknown',
                conductor_requests.HOSTS[2].upper(),
                conductor_requests.HOSTS[0],
            ]
        },
    ),
    'ignored but not there': conductor_requests.changed(
        'boot', {'ignore_hosts': ['unknown']}
    ),
    'all are ignored': conductor_requests.changed(
        'boot', {'ignore_hosts': list(conductor_requests.HOSTS)}
    ),
    'pinned': conductor_requests.changed('boot', conductor_requests.pinned(None)),
    'groups without a policy': conductor_requests.changed(
        'boot',
        _flavor(extra_specs={'resources1:VCPU': '1', 'resources2:MEMORY_MB': '64'}),
    ),
    'a policy that is none': conductor_requests.changed(
        'boot',
        _flavor(extra_specs={'resources1:VCPU': '1', 'group_policy': 'nonsense'}),
    ),
    'claim refused': conductor_requests.changed('boot', _flavor(memory_mb=150000)),
    'every claim refused': conductor_requests.changed(
        'boot', _flavor(memory_mb=200000)
    ),
    'three at once': conductor_requests.changed('boot of three', {}),
    'some are filtered': conductor_requests.anti_affine(5),
}


@contextmanager
def _without_service(cloud):
    """Remove the service record of a host while the context lasts."""
    database = cloud.cells['cell1']
    name = conductor_requests.HOSTS[0]
    database.update('services', {'host': 'elsewhere'}, host=name)
    yield
    database.update('services', {'host': name}, host='elsewhere')


@contextmanager
def _dead_cell(cloud):
    """Let the database of a cell fail while the context lasts."""

    def rename(old, new):
        with cloud.cells['cell2'].engine.begin() as connection:
            connection.exec_driver_sql(f'RENAME TABLE {old} TO {new}')

    rename('compute_nodes', 'hidden')
    yield
    rename('hidden', 'compute_nodes')


TROUBLES = {'no service': _without_service, 'dead cell': _dead_cell}


@pytest.mark.parametrize('case', [*CASES, *TROUBLES])
def test_nova_scheduler_and_novasched_log_the_same_lines(pair, cloud, case):
    """Both schedulers log the same lines, with logger, level and text, in order."""
    nova, ours = pair
    cloud.refresh_services()

    def fill_best_host():
        best = cloud.computes[BEST]
        cloud.placement.allocate(best.uuid, best.uuid, {'MEMORY_MB': BIG})

    happens = fill_best_host if 'refused' in case else None
    arguments = CASES.get(case, CASES['placed'])
    with TROUBLES.get(case, nullcontext)(cloud):
        nova_lines = nova.lines(copy.deepcopy(arguments), happens)
        our_lines = ours.lines(copy.deepcopy(arguments), happens)

    assert nova_lines
    if case == 'some are filtered':
        nova_lines = [line for line in nova_lines if not _is_logged_last(line)]
    # sorted() is stable: lines stay in order otherwise.
    nova_lines = sorted(nova_lines, key=_is_logged_last)
    our_lines = sorted(our_lines, key=_is_logged_last)
    assert our_lines == nova_lines


def _is_logged_last(line):
    """True for lines that novasched logs after all servers have hosts."""
    return INSTANCE.sub('', line[2]).startswith(TOGETHER)
