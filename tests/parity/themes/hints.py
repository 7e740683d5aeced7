# SPDX-License-Identifier: Apache-2.0
"""Hints that are small languages: addresses and JSON queries."""

from __future__ import annotations

import json
from typing import Any

from tests.parity.dice import Dice, Draft
from tests.parity.themes.capacity import sizes, workload
from tests.parity.themes.neighbours import SERVERS

ADDRESSES = (
    '192.0.2.1', '192.0.2.130', '192.0.3.1', '2001:db8::1', '2001:db8::ff', '10.0.0.1', None,
)  # fmt: skip
NEAR = ('192.0.2.1', '192.0.2.200', '2001:db8::1', '2001:db8::ffff', '192.0.3.77')
ODD_NEAR = (
    ['10.0.0.1', '10.0.0.2'], [], ['x'], ['300.0.0.1'], ['10'], ['192.0.2.1/25'], [''], ['192.0.2'],
    ['192.0.2.1 '], ['::ffff:192.0.2.1'], ['1'],
)  # fmt: skip
CIDRS = ('/24', '/25', '/32', '/0', '/16', '/64', '/120', '/255.255.255.0')
ODD_CIDRS = (
    ['24'], ['x'], [], ['/24', '/25'], [''], ['/33'], ['/-1'], ['/0.0.0.255'], ['/'],
    ['/ffff:ffff::'], ['/ffff:0:ffff::'], ['/255.0.255.0'], ['/024'],
)  # fmt: skip
ODD_HINTS = (
    'x', SERVERS[0], '', '["="]', 5, None, True, {}, {'a': 1}, [None], [5], [0], [1.5], [False], [['x']],
    [['=', '$host', 'host1']], [{}], [{'a': 1}], ['', None], [SERVERS[0], 5], [SERVERS[0], ['x']],
)  # fmt: skip
ODD_QUERIES = (
    [], [''], ['no JSON'], ['[]'], ['{}'], ['5'], ['"x"'], ['null'], ['[1]'], ['["unknown", 1]'],
    ['["="]'], ['[["="]]'], ['{"a": 1}'], ['[[]]'], ['[null]'], ['true'],
)  # fmt: skip
ODD_TERMS: tuple[list[Any], ...] = (
    [], ['bogus', 1], ['not', 0, 1], ['or', '$unknown'], ['and', 'text'], ['='], [5, 5],
)  # fmt: skip
VARIABLES = (
    '$free_ram_mb', '$free_disk_mb', '$vcpus_total', '$vcpus_used', '$total_usable_ram_mb', '$num_instances',
    '$num_io_ops', '$hypervisor_type', '$hypervisor_hostname', '$host', '$stats.num_instances', '$stats.unknown',
    '$unknown', '$', '$stats', '$free_ram_mb.x', '$service.disabled', '$cpu_info', '$host_ip', '$service.host',
    '$service.version', '$service.disabled_reason', '$service.unknown', '$service', '$uuid', '$cell_uuid',
    '$aggregates', '$instances', '$metrics', '$supported_instances', '$failed_builds', '$disk_mb_used',
    '$cpu_allocation_ratio', '$nodename', '$hypervisor_version', '$instances.x', '$aggregates.x', '$metrics.x',
)  # fmt: skip
"""The first ten are the usual ones."""
INTERNAL_VARIABLES = (
    '$service.up', '$service.binary', '$service.forced_down', '$service.id', '$limits', '$updated', '$update',
    '$numa_topology', '$pci_stats', '$__class__', '$allocation_candidates',
)  # fmt: skip


def addresses(dice: Dice, draft: Draft) -> None:
    for host in draft.hosts:
        host['row']['host_ip'] = dice.one(*ADDRESSES)
    near, cidr = [dice.one(*NEAR)], [dice.one(*CIDRS)]
    if dice.maybe(0.2):
        near = dice.one(*ODD_NEAR)
    if dice.maybe(0.2):
        cidr = dice.one(*ODD_CIDRS)
    if dice.maybe(0.85):
        draft.hint(build_near_host_ip=near)
    if dice.maybe(0.7):
        draft.hint(cidr=cidr)


def odd_hints(dice: Dice, draft: Draft) -> None:
    """Now and then a hint of another type than the API lets through."""
    if dice.maybe(0.95):
        return
    given = draft.request.get('scheduler_hints')
    name = dice.one(*given) if given else 'unknown'
    draft.hint(**{name: dice.one(*ODD_HINTS)})


def query(dice: Dice, draft: Draft) -> None:
    sizes(dice, draft)
    workload(dice, draft)
    if dice.maybe(0.05):
        hint = dice.one(*ODD_QUERIES)
    elif dice.maybe(0.01):
        hint = [json.dumps([dice.one('=', '<', 'in'), '$host_ip', '192.0.2.1'])]
    else:
        hint = [json.dumps(_term(dice, 3))]
    if dice.maybe(0.95):
        draft.hint(query=hint)


def _term(dice: Dice, depth: int) -> list[Any]:
    if depth and dice.maybe(0.4):
        joined = [_term(dice, depth - 1) for _ in range(dice.one(0, 1, 1, 2, 2, 3))]
        return [dice.one('not', 'or', 'and'), *joined]
    if dice.maybe(0.03):
        return dice.choice(ODD_TERMS)
    operator = dice.one('=', '<', '>', 'in', '<=', '>=')
    return [operator, *(_operand(dice) for _ in range(dice.one(1, 2, 2, 2, 3)))]


def _operand(dice: Dice) -> Any:
    if dice.maybe(0.01):
        return dice.one(*INTERNAL_VARIABLES)
    if dice.maybe(0.55):
        return dice.one(*VARIABLES) if dice.maybe(0.4) else dice.one(*VARIABLES[:10])
    if dice.maybe(0.8):
        return dice.one(0, 1, 8, 512, 8192, 4.5, 'QEMU', 'host1', -1)
    return dice.one(None, '', True, False, 'x', '8', {'a': 1}, [], [1, 2])
