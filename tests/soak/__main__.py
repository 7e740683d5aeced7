# SPDX-License-Identifier: Apache-2.0
"""An hour's worth of requests in minutes: ``python -m tests.soak``.

Tenants boot, move and delete servers in a cloud whose hosts fill up, fail and return,
and the daemon is watched. Exits with 1 where it grows, or where Placement has anything
else than what was answered.

With ``--beside`` another scheduler takes requests from the same queue, novasched's
requests to Placement fail now and then, and instances are moved in every way that a
conductor knows. Exits with 1 where Placement has anything else than what was answered,
once what was in doubt is undone.
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
from tests.soak.books import CHANGED_MEANWHILE, DOUBTFUL, UNDO_S, Books
from tests.soak.conductor import SHARES, SHARES_BESIDE, Conductor
from tests.soak.twins import NOVA, NOVASCHED, Journal, schedulers
from tests.soak.verdict import WARM_UP, Verdict, Watch
from tests.soak.weather import Weather
from tests.soak.world import TURNED_AWAY, World

LEAST = 30  # seconds
PHASE = 30.0
"""After so many seconds everybody pauses, and what Placement has is compared."""
STEP = 0.25  # seconds from one step of the weather to the next
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
    # Of each refusal, which is an exception of nova's, and nova is not here.
    logging.getLogger('oslo_messaging').addHandler(logging.NullHandler())
    print(f'seed {chosen.seed}', file=sys.stderr)
    try:
        with redirect_stdout(sys.stderr):
            verdict = _run(chosen, chosen.directory and chosen.directory.absolute())
    except (pytest.exit.Exception, Failed) as error:
        print(error, file=sys.stderr)
        return 2
    publish(chosen, verdict.sheets(), {'seed': chosen.seed, **verdict.report()})
    return int(not verdict.met)


def _run(chosen, directory):
    """A cloud, its schedulers, and all who act, for so long as was chosen."""
    tell = teller()
    with ExitStack() as stack:
        tell('servers start')
        made = stack.enter_context(cloud(directory))
        world = World(made)
        world.fill(chosen.hosts)
        tell(
            'novasched starts'
            + (f', and {chosen.beside} beside it' if chosen.beside else '')
        )
        random = Random(f'{chosen.seed} faults')
        journal = Journal(world.host_of)
        config = {**CONFIG, 'scheduler': {'workers': chosen.workers}}
        running = stack.enter_context(
            schedulers(made, chosen.beside, config, journal, random)
        )
        ours = [each.daemon for each in running if not each.is_novas]
        # Alone, nothing is done to its requests to Placement: there is nothing to undo.
        books = Books(world, journal, running, UNDO_S if chosen.beside else 0.0)
        caller = stack.enter_context(Caller(made.config('conductor')))

        def conductor(who):
            shares = SHARES_BESIDE if chosen.beside else SHARES
            return Conductor(caller, Random(f'{chosen.seed} {who}'), books, shares)

        weather = Weather(
            conductor('weather'), ours, chosen.hosts, is_calm=chosen.beside == NOVA
        )
        # Pools are fuller while a daemon alone warms up than they will ever be again.
        crowd = chosen.callers * (1 if chosen.beside else 4)
        conductors = [conductor(str(number)) for number in range(crowd)]
        watch = stack.enter_context(Watch(ours[0].pid, made))
        start = time.monotonic()
        while (passed := time.monotonic() - start) < chosen.seconds:
            if passed > chosen.seconds * WARM_UP:
                del conductors[chosen.callers :]
            _act(conductors, weather, min(PHASE, chosen.seconds - passed))
            books.compare()
            for each in running:
                if not each.daemon.alive():
                    raise Failed(
                        f'{each.name} has ended:\n{each.daemon.text()[-5000:]}'
                    )
            tell(books.story())
        seconds = time.monotonic() - start
        samples = [*watch.samples]
        tell('schedulers undo what they can')
        books.settle()
        log = '\n'.join(each.text() for each in ours)
        more = {
            'events': world.events,
            'claims': journal.claims,
            'faults': journal.faults,
        }
        if chosen.beside:
            title = f'novasched beside {chosen.beside}, {chosen.callers} clients'
            zeros = {"crashes in novasched's log": len(_CRASH.findall(log))}
            return Verdict(title, seconds, world.counts, zeros, **more)
        zeros = {
            DOUBTFUL: world.counts[DOUBTFUL],
            CHANGED_MEANWHILE: world.counts[CHANGED_MEANWHILE],
            'errors in the log': len(_ERROR.findall(log)),
            'workers that ended': len(watch.workers) - chosen.workers,
        }
        if chosen.workers == 1:
            # Another worker does not know of what is in flight, and nova-compute
            # settles it.
            zeros[TURNED_AWAY] = world.counts[TURNED_AWAY]
        return Verdict(
            'Requests and answers', seconds, world.counts, zeros, samples, **more
        )


def _act(tenants, weather, seconds):
    """Let everybody act for a while; at the end nobody does."""
    over = threading.Event()

    def busily(tenant):
        while not over.is_set():
            tenant.act()

    def now_and_then():
        while not over.wait(STEP):
            weather.act()

    with ThreadPoolExecutor(len(tenants) + 1) as pool:
        acting = [
            pool.submit(now_and_then),
            *(pool.submit(busily, each) for each in tenants),
        ]
        try:
            # Who cannot go on ends the rest.
            wait(acting, seconds, FIRST_EXCEPTION)
        finally:
            over.set()
    for each in acting:
        each.result()


def _arguments(arguments):
    parser = argparse.ArgumentParser('python -m tests.soak', description=__doc__)
    parser.add_argument('--seconds', type=float, default=600, help='for how long')
    parser.add_argument(
        '--seed',
        default=secrets.token_hex(4),
        help='what everybody does by chance comes of it',
    )
    parser.add_argument('--hosts', type=int, default=60, help='about how many')
    parser.add_argument(
        '--callers',
        '--clients',
        type=int,
        help='who ask at the same time; 6, or 16 of two',
    )
    parser.add_argument(
        '--beside',
        choices=(NOVASCHED, NOVA),
        help='let this scheduler serve the same queue',
    )
    parser.add_argument('--workers', type=int, default=1, help='of the daemon')
    parser.add_argument(
        '--directory', type=Path, help='where logs go that shall be kept'
    )
    add_outputs(parser)
    chosen = parser.parse_args(arguments)
    if chosen.seconds < LEAST:
        parser.error(f'in less than {LEAST} seconds there is nothing to compare')
    chosen.callers = chosen.callers or (16 if chosen.beside else 6)
    return chosen


if __name__ == '__main__':
    sys.exit(main())
