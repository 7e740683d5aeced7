# SPDX-License-Identifier: Apache-2.0
"""Mistakes in the product that the simulation has to find: ``python -m
tests.simulation.mutations``.

Each mistake replaces a text of a file in a copy of the product. Days of new seeds are
simulated with the copy until a day has a problem that the day does not have with the
product as it is. Exits with 1 if more than one mistake is not found. Mistakes that show
too rarely are left out, but for ``--only``.
"""

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
LIMIT_S = 600
"""Seconds in which a mistake is to be found."""
MAY_ESCAPE = 1
SUMMARY = re.compile(r'seeds \d+ to (?P<last>\d+); with problems: \[(?P<failed>.*)\]')
"""The last line about some days."""


@dataclass(frozen=True)
class Mutation:
    """A plausible mistake.

    :ivar path: the file, below the package.
    :ivar rare: why hundreds of days have no problem with the mistake.
    """

    title: str
    path: str
    old: str
    new: str
    rare: str = ''


MUTATIONS = (
    Mutation(
        'a claim without an answer is not looked up again',
        'placement/claims.py',
        '            for claim in written.lost:\n                self.cleanup.add(claim)\n',
        '',
    ),
    Mutation(
        'a claim replaces the allocations on the source of an evacuation',
        'placement/allocations.py',
        "'allocations': {**self.candidate.allocations, **_plain(self.before)},",
        "'allocations': {**self.candidate.allocations},",
    ),
    Mutation(
        'claims of an abandoned request are forgotten while another one claims',
        'placement/claims.py',
        '            self.cleanup.put_back(tasks)',
        '            pass',
        rare='Placement has to make the abandoned claim after the look that precedes the '
        'next claim',
    ),
    Mutation(
        'the allocations of a claim are not deleted after a refusal',
        'placement/claims.py',
        '            if claim.is_made(held):\n                self._deleter',
        '            if False:\n                self._deleter',
    ),
    Mutation(
        'an undo looks once',
        'placement/cleanup_task.py',
        'if self._is_settled(doubt) and (is_last or now >= self.final):',
        'if self._is_settled(doubt):',
    ),
    Mutation(
        'a deletion is repeated after a lost answer',
        'placement/cleanup.py',
        "answer = self._api.send('PUT', path, claim.trace_id, body, once=True)",
        "answer = self._api.send('PUT', path, claim.trace_id, body)",
        rare='another scheduler has to claim the same amounts between both attempts',
    ),
    Mutation(
        'late requests are expected for ten seconds only',
        'placement/cleanup_task.py',
        'LATE_CLAIM_S = 120.0',
        'LATE_CLAIM_S = 10.0',
    ),
    Mutation(
        'a generation conflict of a claim counts as a refusal',
        'placement/claim_protocol.py',
        'Answer.CONFLICT: ReadFirst(Step.WRITE_BESIDE)',
        'Answer.CONFLICT: Step.REFUSE',
        rare='most conflicts follow an attempt without an answer, and then the uncertain '
        'claim is deleted after the refusal',
    ),
    Mutation(
        'an attempt without an answer is forgotten by the next one',
        'placement/api.py',
        'maybe_done=self.maybe_done or failure.maybe_done,',
        'maybe_done=failure.maybe_done,',
    ),
    Mutation(
        'the decision lock opens for everybody',
        'scheduler/claims/decision_lock.py',
        '                while not turn.has_come.wait(self._seconds_left(turn)):\n'
        '                    self._overtake(turn)\n',
        '',
    ),
    Mutation(
        'choices are not checked beside those of other schedulers',
        'scheduler/claims/rivals.py',
        '    while turn.was_overtaken or _rivals(choice, claims):',
        '    while False:',
    ),
    Mutation(
        'the later of two schedulers takes precedence',
        'scheduler/claims/ledger.py',
        'self.position_of(theirs) < self.position_of(ours)',
        'self.position_of(theirs) > self.position_of(ours)',
    ),
    Mutation(
        'a cursor is off by one',
        'scheduler/claims/ledger.py',
        'count = self.number - number',
        'count = max(0, self.number - number - 1)',
    ),
    Mutation(
        'a claim that hosts show is over for older snapshots, too',
        'scheduler/claims/ledger.py',
        'return self.shown_at > read_at\n',
        'return self.shown_at > 1e18\n',
        rare='a request has to wait between its reading of the hosts and its choice, '
        'while another request reads the hosts anew',
    ),
    Mutation(
        'a released claim stays in the ledger',
        'scheduler/claims/pending_claims.py',
        'was_there = ledger.released(claim, self.ledger.clock())',
        'was_there = True',
    ),
    Mutation(
        'claims of other schedulers are not entered',
        'rpc/peers.py',
        '                ledger.chosen(claim, next(self._positions))',
        '                pass',
    ),
    Mutation(
        'a release is not announced',
        'scheduler/claims/pending_claims.py',
        '            self.peers.announce(claim, Stage.RELEASED)',
        '            pass',
    ),
    Mutation(
        'a choice does not wait for earlier announcements',
        'rpc/peers.py',
        '        while end > began:\n',
        '        while False:\n',
    ),
    Mutation(
        'a refusal on an earlier answer of Placement stands',
        'scheduler/cycle.py',
        '            return End.STALE\n',
        '            return End.REFUSED\n',
        rare='Placement is asked anew where an earlier answer has no host; filters have '
        'to reject all hosts of the answer, while another host has room again',
    ),
    Mutation(
        'the group of a request has no pending members',
        'scheduler/cycle.py',
        '        request = with_pending_members(request, state, self._claims.ledger)\n',
        '',
    ),
    Mutation(
        'the patience of a request counts from its thread',
        'scheduler/drivers/filter_scheduler.py',
        'received=min(request.received, began)',
        'received=began',
    ),
    Mutation(
        'the ages of announcements are not checked',
        'rpc/announcements.py',
        'Age = Annotated[float, Meta(ge=0.0, le=MAX_AGE_S)]',
        'Age = float',
    ),
    Mutation(
        'Placement knows a change of aggregates at once',
        'cells/regrouping.py',
        'AGGREGATES_LAG_S = 5.0',
        'AGGREGATES_LAG_S = 0.0',
    ),
    Mutation(
        'the queue of deletions is worked on once',
        'placement/cleanup.py',
        '                        self._thread = None\n'
        '                        return\n'
        '                if self._over.wait(pause):\n'
        '                    return\n'
        '        finally:\n'
        '            with self._changed:\n'
        '                if self._thread is threading.current_thread():\n'
        '                    self._thread = None\n',
        '                        return\n'
        '                if self._over.wait(pause):\n'
        '                    return\n'
        '        finally:\n'
        '            pass\n',
    ),
    Mutation(
        'the choices of a dead scheduler stay',
        'rpc/peers.py',
        '                    self._claims.drop_choices_of_dead(alive)',
        '                    pass',
    ),
    Mutation(
        'the time of a claim counts from its choice',
        'scheduler/claims/ledger.py',
        '            late_at = entry.claimed_at + self.timeout\n',
        '            late_at = claim.since + self.timeout\n',
    ),
    Mutation(
        'a question among schedulers is asked once',
        'rpc/peer_protocol.py',
        '                self._ask(name)\n                self._peers[name]',
        '                self._peers[name]',
    ),
    Mutation(
        'schedulers whose connections are broken decide alone',
        'rpc/peer_protocol.py',
        '        return self._separation.since + REUNION_S\n',
        '        return -math.inf\n',
    ),
    Mutation(
        'an earlier claim ends a later choice',
        'scheduler/claims/ledger.py',
        '                if other.since <= claim.since:\n',
        '                if True:\n',
        rare='announcements come late while schedulers do not hear each other, and then '
        'two members of a group may be on a host',
    ),
    Mutation(
        'a claim that a proxy has sent twice counts as refused',
        'placement/claim_protocol.py',
        'Answer.CONFLICT: ReadFirst(Step.REFUSE)',
        'Answer.CONFLICT: Step.REFUSE',
        rare='the uncertain claims are deleted after the refusal, and a refusal of '
        'several servers is not compared with the hosts',
    ),
    Mutation(
        'a late refusal holds for a claim that a proxy has sent twice',
        'placement/claim_protocol.py',
        'not response.repeated and seconds <= PROXY_PATIENCE_S',
        'not response.repeated',
        rare='the last host that refuses a server has to get room before the first of '
        'both attempts comes',
    ),
    Mutation(
        'the members of a group are those that the caller knows',
        'scheduler/claims/groups.py',
        '            hosts[uuid] = host.uuid\n    return hosts\n',
        '    return hosts\n',
    ),
    Mutation(
        'a claim ends once the row of the instance names the host',
        'scheduler/model/claim.py',
        ' and host in (None, key)\n',
        ' and host is None\n',
    ),
    Mutation(
        'no database lags behind',
        'scheduler/model/instance.py',
        'MAX_READ_LAG_S = 5.0',
        'MAX_READ_LAG_S = 0.0',
    ),
    Mutation(
        'claims are not subtracted from a remembered answer',
        'placement/remembered.py',
        '                self._left[name][row] -= amounts[uuid][name]',
        '                pass',
    ),
    Mutation(
        'a changed host keeps its weights',
        'scheduler/host_table.py',
        '                column.fresh[changed] = False',
        '                column.fresh[changed[1:]] = False',
    ),
    Mutation(
        'the claims that a long request needs are forgotten',
        'scheduler/claims/ledger.py',
        'oldest = max(min(self._tries, default=math.inf), now - REQUEST_LIMIT_S)',
        'oldest = math.inf',
    ),
    Mutation(
        'the slice of requests for several instances never ends',
        'scheduler/claims/decision_lock.py',
        '            if self._credit <= 0:\n',
        '            if False:\n',
    ),
    Mutation(
        'a request sees only the candidates near the first NUMA cells',
        'placement/local_candidates.py',
        'chain((replace(tree, choice=choice) for choice in choices), [tree])',
        '[tree]',
    ),
    Mutation(
        'a claim counts on its host with any candidate',
        'scheduler/claims/hosts_left.py',
        'host, claim.request, claim.candidate, claim.limits, self._settings',
        'host, claim.request, None, claim.limits, self._settings',
    ),
    Mutation(
        'the table of a peer ends claims that a request needs',
        'rpc/peers.py',
        '        if is_chosen:\n',
        '        if True:\n',
        rare='a request for many servers has to work for minutes while connections to '
        'the broker break, on hosts that are nearly full',
    ),
)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        'python -m tests.simulation.mutations', description=__doc__
    )
    parser.add_argument('--seconds', type=float, default=LIMIT_S, help='for each')
    parser.add_argument('--jobs', type=int, default=2, help='days at the same time')
    parser.add_argument('--only', type=int, help='the number of a single mistake')
    parser.add_argument('--first', type=int, default=1, help='the first seed')
    chosen = parser.parse_args(arguments)

    escaped = 0
    for number, mutation in enumerate(MUTATIONS, 1):
        is_wanted = not mutation.rare if chosen.only is None else chosen.only == number
        if not is_wanted:
            continue
        began = time.monotonic()
        story = found(mutation, chosen.seconds, chosen.jobs, chosen.first)
        taken = time.monotonic() - began
        if story is None:
            escaped += 1
            print(f'{number:2}  NOT FOUND in {taken:.0f} s: {mutation.title}')
        else:
            print(f'{number:2}  found in {taken:.0f} s: {mutation.title}\n{story}')
        sys.stdout.flush()
    return int(escaped > MAY_ESCAPE)


def found(mutation: Mutation, seconds: float, jobs: int, first: int) -> str | None:
    """The story of the first day in which a mistake is found; None without one.

    :param first: the first seed.
    :raises ValueError: the product has no such text.
    """
    ends = time.monotonic() + seconds
    with tempfile.TemporaryDirectory(prefix='novasched-mutation-') as folder:
        root = Path(folder)
        shutil.copytree(ROOT / 'novasched', root / 'novasched')
        (root / 'tests').symlink_to(ROOT / 'tests')
        file = root / 'novasched' / mutation.path
        text = file.read_text(encoding='utf-8')
        if text.count(mutation.old) != 1:
            raise ValueError(f'{mutation.title}: the text is not in {mutation.path}')
        file.write_text(text.replace(mutation.old, mutation.new), encoding='utf-8')

        while (left := ends - time.monotonic()) > 0:
            output = _simulated(
                root, f'--first={first}', f'--seconds={left}', f'--jobs={jobs}'
            )
            [summary] = SUMMARY.finditer(output)
            for seed in re.findall(r'\d+', summary['failed']):
                if ' 0 problems' in _simulated(ROOT, f'--first={seed}', '--days=1'):
                    return _story(output, seed)
                print(f'    seed {seed} has a problem without any mistake')
            first = int(summary['last']) + 1
    return None


def _simulated(root: Path, *options: str) -> str:
    """The output of days that are simulated with the product of a folder."""
    command = [sys.executable, '-m', 'tests.simulation', *options]
    return subprocess.run(command, cwd=root, capture_output=True, text=True).stdout


def _story(output: str, seed: str) -> str:
    """The lines about a day, indented."""
    story: list[str] = []
    for line in output.splitlines():
        if line.startswith(f'seed {seed}:') or (story and line.startswith(' ')):
            story.append(f'      {line}')
        elif story:
            break
    return '\n'.join(story)


if __name__ == '__main__':
    sys.exit(main())
