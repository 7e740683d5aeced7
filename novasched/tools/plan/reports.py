# SPDX-License-Identifier: Apache-2.0
"""Reports of plans, for people and for a shell."""

import shlex
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence

from novasched.conf.redaction import printable, printable_lines
from novasched.tools import explain
from novasched.tools.plan.plan_file import Plan, PlannedMove, StayingServer
from novasched.tools.plan.servers import MICROVERSIONS, Kind

ROWS = 100
"""Maximum number of moves in a table; JSON has all."""
SERVERS = 10
"""Maximum number of staying servers of a host in a report."""
MIB_PER_GIB = 1024

CLIENT_COMMANDS: Mapping[Kind, Sequence[str]] = {
    Kind.LIVE: ('migrate', '--live-migration', '--wait'),
    Kind.COLD: ('migrate', '--wait'),
    Kind.EVACUATION: ('evacuate', '--wait'),
}
"""The arguments of ``openstack server``."""


def as_text(plan: Plan) -> str:
    """The moves in a table, step by step, and the servers that stay."""
    moves = plan.moves
    copied = size_of(plan.copied_mb)
    lines = [
        f'Plan: {plan.goal}',
        f'{_sentence(plan.reached)}: {counted(len(moves), "move")} in'
        f' {counted(len(plan.steps), "step")}, at most {copied} to copy.',
    ]
    if moves:
        lines += ['', _table(plan)]
    if len(moves) > ROWS:
        lines.append(f'and {len(moves) - ROWS:,} other moves')

    on_host = defaultdict[str, list[StayingServer]](list)
    for staying in plan.staying:
        on_host[staying.host].append(staying)
    for host, servers in on_host.items():
        verb = 'stays' if len(servers) == 1 else 'stay'
        lines += ['', f'{host}: {counted(len(servers), "server")} {verb}']
        for staying in servers[:SERVERS]:
            doubt = '' if staying.is_proven else ' (no way was found)'
            lines.append(f'  {staying.name or staying.server}: {staying.why}{doubt}')
        if len(servers) > SERVERS:
            lines.append(f'  and {len(servers) - SERVERS:,} others')
    if plan.further:
        lines += ['', f'{_sentence(plan.further)}.']
    return printable_lines('\n'.join(lines))


def _table(plan: Plan) -> str:
    rows = []
    for number, step in enumerate(plan.steps, 1):
        for move in step:
            kind = move.kind.removesuffix(' migration')
            rows.append(
                (
                    move.name or move.server,
                    str(number),
                    move.flavor,
                    move.source,
                    move.host,
                    kind,
                    f'{move.copied_mb / MIB_PER_GIB:,.1f}',
                    move.why,
                )
            )
    names = ('server', 'step', 'flavor', 'from', 'to', 'kind', 'GiB', 'why')
    return explain.table_of(names, rows[:ROWS], reasons='why')


def as_shell(plan: Plan) -> str:
    """A command of the openstack client for each move."""
    return '\n'.join(_commands(plan))


def _commands(plan: Plan) -> Iterator[str]:
    yield f'# {printable(plan.goal)}: {printable(plan.reached)}'
    for number, step in enumerate(plan.steps, 1):
        yield f'# Step {number}'
        for move in step:
            yield _command(move)
            if move.kind is Kind.COLD:
                # nova waits for the confirmation of a cold migration.
                yield f'openstack server migration confirm {shlex.quote(move.server)}'


def _command(move: PlannedMove) -> str:
    words = [
        'openstack',
        f'--os-compute-api-version={MICROVERSIONS[move.kind]}',
        'server',
        *CLIENT_COMMANDS[move.kind],
        '--host',
        move.host,
        move.server,
    ]
    return shlex.join(words)


def size_of(mb: int) -> str:
    """An amount in MiB as text."""
    return f'{mb / MIB_PER_GIB:,.1f} GiB'


def counted(number: int, word: str) -> str:
    """A number of things in words."""
    if number == 1:
        return f'1 {word}'
    return f'{number:,} {word}s'


def _sentence(text: str) -> str:
    return text[:1].upper() + text[1:]
