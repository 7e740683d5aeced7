# SPDX-License-Identifier: Apache-2.0
"""The lines that operators search for: the real nova-scheduler's log and ours, for the
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
"""How the lines that are compared begin, whoever says them."""
CANDIDATES = re.compile(r', allocation_candidates: \d+')
"""nova counts the candidates of each host; there may be very many, and they say nothing
of the host."""
INSTANCE = re.compile(r'^\[instance: [^]]*\] ')
"""Before the text where a line is about one server."""
HOST = re.compile(r'\([^()]*\)[^(\]]*(?=,|\])')
"""A host in the line that lists those that passed. nova lists them in the order of a
set."""
DETAILS = 'DEBUG', 'Filtering'
"""nova lists the hosts that each filter passed; we say, at INFO, why the last ones were
rejected."""
WEIGHT = re.compile(r'(?<=weight: )[^]]+')
"""A sum, of which the last digit depends on the order of the addends."""
FIRST_WORDS = (
    'There is more than one numbered request group in the allocation candidate query',
)
"""Of these lines nova says more, and what to do."""
CELL = re.compile(r'^(Failed to get computes for cell \S+):.*')
"""We add why."""
TOGETHER = ('Selected host', 'Cleaning up', 'Deleted allocations')
"""We claim for all servers of a request together, once each has its host. So hosts are
told last, and where one server finds none there is nothing to tell, nor to clean up."""
BEST = conductor_requests.HOSTS[-1]
BIG = 262000  # MiB, of the 262144 that the best host has


@dataclass(frozen=True)
class Scheduler:
    """A scheduler, and what it logs."""

    daemon: Daemon
    between: Proxy
    caller: Caller
    cloud: NovaCloud

    def lines(self, arguments, happens):
        """What it logs for a request, of what is watched; something happens once
        Placement has offered candidates."""
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
        return [
            each
            for each in map(_line, self.daemon.text()[before:].splitlines())
            if each
        ]


def _line(text):
    match = LINE.match(text)
    if match is None:
        return None
    said = CANDIDATES.sub('', match['text']).rstrip()
    for start in FIRST_WORDS:
        said = start if said.startswith(start) else said
    said = WEIGHT.sub(lambda weight: f'{float(weight[0]):.9g}', said)
    said = CELL.sub(r'\1', said)
    if said.startswith('Filtered '):
        said = f'Filtered {sorted(HOST.findall(said))}'
    if (match['level'], said[:9]) == DETAILS or not INSTANCE.sub('', said).startswith(
        STARTS
    ):
        return None
    return match['logger'], match['level'], said


@pytest.fixture(scope='module')
def pair(cloud):
    """Both on one furnished cloud, with debugging on."""
    conductor_requests.furnish(cloud)
    with ExitStack() as stack:
        caller = stack.enter_context(Caller(cloud.config('caller')))
        found = []
        for command in ([cloud.nova.script('nova-scheduler')], []):
            between = stack.enter_context(Proxy(cloud.placement_url))
            config = {
                'DEFAULT': {'debug': True, 'logging_debug_format_suffix': ''},
                'filter_scheduler': {
                    'enabled_filters': ','.join(conductor_requests.FILTERS)
                },
                'placement': {'endpoint': between.url},
                'novasched': {'in_flight_timeout': 0},
            }
            daemon = stack.enter_context(Daemon(cloud, config, command))
            found.append(Scheduler(daemon, between, caller, cloud))
        yield found[0], found[1]


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
    """A host whose nova-compute has no record."""
    database = cloud.cells['cell1']
    name = conductor_requests.HOSTS[0]
    database.update('services', {'host': 'elsewhere'}, host=name)
    yield
    database.update('services', {'host': name}, host='elsewhere')


@contextmanager
def _dead_cell(cloud):
    """A cell whose database fails."""
    names = ['compute_nodes', 'hidden']
    for here, there in (names, names[::-1]):
        with cloud.cells['cell2'].engine.begin() as connection:
            connection.exec_driver_sql(f'RENAME TABLE {here} TO {there}')
        if there == 'hidden':
            yield


TROUBLES = {'no service': _without_service, 'dead cell': _dead_cell}


@pytest.mark.parametrize('case', [*CASES, *TROUBLES])
def test_both_log_the_same(pair, cloud, case):
    """Logger, level and text, in order."""
    cloud.refresh_services()

    def happens():
        best = cloud.computes[BEST]
        cloud.placement.allocate(best.uuid, best.uuid, {'MEMORY_MB': BIG})

    meanwhile = happens if 'refused' in case else None
    arguments = CASES.get(case, CASES['placed'])
    with TROUBLES.get(case, nullcontext)(cloud):
        nova, ours = [each.lines(copy.deepcopy(arguments), meanwhile) for each in pair]
    assert nova
    if case == 'some are filtered':
        nova = [each for each in nova if not _is_of_all(each)]
    assert sorted(ours, key=_is_of_all) == sorted(nova, key=_is_of_all)


def _is_of_all(line):
    return INSTANCE.sub('', line[2]).startswith(TOGETHER)
