# SPDX-License-Identifier: Apache-2.0
"""An hour's worth of requests in minutes: ``python -m tests.soak``.

Tenants boot, move and delete servers in a cloud whose hosts fill up, fail and return,
and the daemon is watched. Exits with 1 if the daemon grows, or if the allocations in
Placement differ from the answers.

With ``--beside`` another scheduler takes requests from the same queue, novasched's
requests to Placement fail now and then, and instances move in every way that a
conductor knows. Exits with 1 if the allocations in Placement differ from the answers
after the time to undo doubtful claims.
"""

import argparse
import logging
import re
import secrets
import signal
import sys
import threading
import time
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import ExitStack, redirect_stdout
from pathlib import Path
from random import Random

import pytest

from tests.lab.large_cloud import cloud
from tests.lab.large_cloud_requests import FILTERS
from tests.lab.processes import Failed
from tests.lab.rpc_load import Caller
from tests.lab.tables import add_outputs, publish, teller
from tests.soak.allocation_audit import (
    CHANGED_MEANWHILE,
    DOUBTFUL,
    UNDO_S,
    AllocationAudit,
)
from tests.soak.chaos import Chaos
from tests.soak.conductor import SHARES, SHARES_BESIDE, Conductor
from tests.soak.schedulers import NOVA, NOVASCHED, Journal, schedulers
from tests.soak.verdict import WARM_UP, Verdict, Watch
from tests.soak.world import TURNED_AWAY, World

MIN_SECONDS = 30
PHASE_S = 30.0
"""Seconds after which all tenants pause, and allocations are compared."""
STEP_S = 0.25  # seconds from one step of the chaos to the next
CONFIG = {
    'DEFAULT': {'debug': False, 'report_interval': 2, 'service_down_time': 300},
    'filter_scheduler': {
        'enabled_filters': ','.join((*FILTERS, 'DifferentHostFilter'))
    },
    'workarounds': {'disable_fallback_pcpu_query': True},
}

_CRASH = re.compile(r' CRITICAL |^Traceback', re.MULTILINE)
_ERROR = re.compile(r' (?:ERROR|CRITICAL) |^Traceback', re.MULTILINE)


def main(arguments=None):
    chosen = _arguments(arguments)
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    # oslo.messaging warns of every refusal: it cannot import nova's exception.
    logging.getLogger('oslo_messaging').addHandler(logging.NullHandler())
    print(f'seed {chosen.seed}', file=sys.stderr)
    try:
        with redirect_stdout(sys.stderr):
            verdict = _run(chosen, chosen.directory and chosen.directory.absolute())
    except (pytest.fail.Exception, Failed) as error:
        print(error, file=sys.stderr)
        return 2
    publish(chosen, verdict.sheets(), {'seed': chosen.seed, **verdict.report()})
    return int(not verdict.met)


def _run(chosen, directory):
    """Start a cloud and its schedulers, let tenants act for the chosen time, and give
    the verdict."""
    tell = teller()
    with ExitStack() as stack:
        tell('servers start')
        nova_cloud = stack.enter_context(cloud(directory))
        world = World(nova_cloud)
        world.fill(chosen.hosts)

        if chosen.beside:
            tell(f'novasched starts, and {chosen.beside} beside it')
            shares = SHARES_BESIDE
            undo_s = UNDO_S
            clients = chosen.callers
        else:
            tell('novasched starts')
            shares = SHARES
            # No request to Placement fails: there are no claims to undo.
            undo_s = 0.0
            # Pools fill up for good during the warm-up of a daemon that runs alone.
            clients = 4 * chosen.callers

        random = Random(f'{chosen.seed} faults')
        journal = Journal(world.host_of)
        config = {**CONFIG, 'scheduler': {'workers': chosen.workers}}
        running = stack.enter_context(
            schedulers(nova_cloud, chosen.beside, config, journal, random)
        )
        ours = [scheduler.daemon for scheduler in running if not scheduler.is_novas]
        audit = AllocationAudit(world, journal, running, undo_s)
        caller = stack.enter_context(Caller(nova_cloud.config('conductor')))

        def conductor(name):
            return Conductor(caller, Random(f'{chosen.seed} {name}'), audit, shares)

        chaos = Chaos(
            conductor('chaos'), ours, chosen.hosts, is_calm=chosen.beside == NOVA
        )
        conductors = [conductor(str(number)) for number in range(clients)]
        watch = stack.enter_context(Watch(ours[0].pid, nova_cloud))

        start = time.monotonic()
        while (passed := time.monotonic() - start) < chosen.seconds:
            if passed > chosen.seconds * WARM_UP:
                del conductors[chosen.callers :]
            _act(conductors, chaos, min(PHASE_S, chosen.seconds - passed))
            audit.compare()
            for scheduler in running:
                if not scheduler.daemon.alive():
                    end = scheduler.daemon.text()[-5000:]
                    raise Failed(f'{scheduler.name} has ended:\n{end}')
            tell(audit.summary())
        seconds = time.monotonic() - start
        samples = [*watch.samples]

        tell('schedulers undo what they can')
        audit.settle()
        log = '\n'.join(daemon.text() for daemon in ours)
        counters = {
            'events': world.events,
            'claims': journal.claims,
            'faults': journal.faults,
        }
        if chosen.beside:
            title = f'novasched beside {chosen.beside}, {chosen.callers} clients'
            zeros = {"crashes in novasched's log": len(_CRASH.findall(log))}
            return Verdict(title, seconds, world.counts, zeros, **counters)

        zeros = {
            DOUBTFUL: world.counts[DOUBTFUL],
            CHANGED_MEANWHILE: world.counts[CHANGED_MEANWHILE],
            'errors in the log': len(_ERROR.findall(log)),
            'workers that ended': len(watch.workers) - chosen.workers,
        }
        if chosen.workers == 1:
            # Several workers do not know each other's pending claims at once, and
            # nova-compute resolves conflicts.
            zeros[TURNED_AWAY] = world.counts[TURNED_AWAY]
        return Verdict(
            'Requests and answers', seconds, world.counts, zeros, samples, **counters
        )


def _act(tenants, chaos, seconds):
    """Let tenants and chaos act for a while. All actions are over at the end."""
    is_over = threading.Event()

    def repeat(tenant):
        while not is_over.is_set():
            tenant.act()

    def disturb():
        while not is_over.wait(STEP_S):
            chaos.act()

    with ThreadPoolExecutor(len(tenants) + 1) as pool:
        actions = [pool.submit(disturb)]
        actions += [pool.submit(repeat, tenant) for tenant in tenants]
        try:
            # The first error ends all actions.
            wait(actions, seconds, FIRST_EXCEPTION)
        finally:
            is_over.set()
    for action in actions:
        action.result()


def _arguments(arguments):
    parser = argparse.ArgumentParser('python -m tests.soak', description=__doc__)
    parser.add_argument('--seconds', type=float, default=600, help='length of the run')
    parser.add_argument(
        '--seed',
        default=secrets.token_hex(4),
        help='seed of all random choices',
    )
    parser.add_argument(
        '--hosts', type=int, default=60, help='approximate number of hosts'
    )
    parser.add_argument(
        '--callers',
        '--clients',
        type=int,
        help='tenants at the same time; by default 6, or 16 with two schedulers',
    )
    parser.add_argument(
        '--beside',
        choices=(NOVASCHED, NOVA),
        help='another scheduler on the same queue',
    )
    parser.add_argument('--workers', type=int, default=1, help='workers of the daemon')
    parser.add_argument('--directory', type=Path, help='a directory for logs to keep')
    add_outputs(parser)
    chosen = parser.parse_args(arguments)
    if chosen.seconds < MIN_SECONDS:
        parser.error(f'in less than {MIN_SECONDS} seconds there is nothing to compare')
    if not chosen.callers and chosen.beside:
        chosen.callers = 16
    elif not chosen.callers:
        chosen.callers = 6
    return chosen


if __name__ == '__main__':
    sys.exit(main())
