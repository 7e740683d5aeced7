# SPDX-License-Identifier: Apache-2.0
"""The same pools and requests through nova's PciDeviceStats and through ours."""

import json
from itertools import count as numbers

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.fitting import fit_on_host
from novasched.scheduler.model.numa import (
    Fit,
    GuestCell,
    GuestTopology,
    HostCell,
    HostTopology,
)
from novasched.scheduler.model.pci import PciRequest
from novasched.scheduler.pci import parse
from novasched.scheduler.pci.pools import consume
from tests.lab.builders import a_host, a_request, a_uuid
from tests.lab.descriptions import wire
from tests.parity.comparison import SEED, Comparison, Difference
from tests.parity.dice import Dice
from tests.parity.themes.topology import NUMA_POLICIES

TAKEN = 20_000
FITTED = 10_000
YES = 'yes'
NO = 'no'

KINDS = ('type-PCI', 'type-PF', 'type-VF', 'vdpa', None)
PROVIDERS = [a_uuid(f'provider{i}') for i in range(4)]
ADDRESSES = ('0000:81:00.0', '0000:82:00.0')

OWN = ('vendor_id', 'product_id', 'numa_node', 'count')
"""What of a pool is no tag."""


def a_pool(dice):
    """Properties and tags, all from a few values, so that much of it matches."""
    kind = dice.one(*KINDS)
    tags = {'dev_type': kind} if kind else {}
    tags |= dice.each({
        'physical_network': ('physnet0', 'Physnet0', 'physnet1', None),
        'remote_managed': ('true', 'false', 'True'), 'rp_uuid': PROVIDERS,
    }, 0.3)  # fmt: skip
    tags |= dice.each(
        {'live_migratable': ('true', 'false', 'TRUE'), 'address': ADDRESSES}, 0.2
    )
    own = dice.each({
        'vendor_id': ('8086', '15b3'), 'product_id': ('abcd', 'ABCD', '1520'),
        'numa_node': (None, 0, 1, 2, 3), 'count': (0, 1, 1, 2, 3, 5),
    })  # fmt: skip
    return own | tags


def stored(dice, pools):
    """The pools as today's nova stores them, or an older one."""
    if dice.maybe(0.3):
        return json.dumps(pools[0] if len(pools) == 1 else pools)
    tags = [
        {name: tag for name, tag in pool.items() if name not in OWN} for pool in pools
    ]
    objects = [
        {**{name: pool[name] for name in OWN}, 'tags': its}
        for pool, its in zip(pools, tags, strict=True)
    ]
    return json.dumps(wire('PciDevicePoolList', {'objects': objects}))


def asks(dice, number, pools):
    """A request for some properties of a pool there is, or for others."""
    specs = []
    for _ in range(dice.one(1, 1, 1, 2)):
        like = dice.one(*pools) if pools and dice.maybe(0.8) else a_pool(dice)
        names = dice.some(
            [x for x in like if x not in ('count', 'numa_node', 'rp_uuid')], 3
        )
        spec = {name: like[name] for name in names}
        odd = {'dev_type': KINDS[1:4], 'remote_managed': ('true', 'yes', 'false')}
        uuids = ','.join(dice.some(PROVIDERS, 2, 1))
        spec |= dice.each({**odd, 'traits': ('CUSTOM_X',), 'rp_uuids': (uuids,)}, 0.1)
        specs.append(spec)
    return {
        'count': dice.one(0, 1, 1, 1, 2, 3), 'spec': specs,
        'alias_name': dice.one(None, 'gpu'), 'request_id': a_uuid(f'request{number}'),
        'numa_policy': dice.one(*NUMA_POLICIES),
    }  # fmt: skip


def cases(seed):
    """Cases without end, the same ones for the same seed."""
    for number in numbers():
        dice = Dice(f'pci {seed} {number}')
        pools = [a_pool(dice) for _ in range(dice.randint(0, 5))]
        requests = [asks(dice, i, pools) for i in range(dice.one(1, 1, 2, 3))]
        mappings = dice.one(None, {'': [a_uuid('root')]})
        if mappings and dice.maybe():
            for request in requests:
                given = [
                    x['rp_uuid'] for x in pools if 'rp_uuid' in x and x['count']
                ] or PROVIDERS
                for i in range(request['count']):
                    mappings[f'{request["request_id"]}-{i}'] = [dice.one(*given)]
        yield {
            'pci_stats': stored(dice, pools),
            'requests': [wire('InstancePCIRequest', each) for each in requests],
            'mappings': mappings,
            'cells': dice.some(range(4), 2),
            'guest': dice.one(1, 1, 2, 3),
            'sockets': {
                i: dice.one(0, 0, 1, 1, 1, None) if i > 2 else i // 2 for i in range(4)
            },
        }


def ours(case):
    pools = parse.pools(case['pci_stats'])
    requests = [the_request(each) for each in case['requests']]
    where = (case['mappings'], case['cells'], case['sockets'])
    left = consume(pools, requests, *where)
    if isinstance(left, str):
        return [False, None]
    return [True, [plain(each) for each in left]]


def the_request(wired):
    data = wired['nova_object.data']
    names = ('count', 'alias_name', 'request_id', 'numa_policy')
    return PciRequest(spec=tuple(data['spec']), **{name: data[name] for name in names})


def cells_of_ours(case):
    """The host cells that a guest gets which fits all of them, but for its devices."""
    host = HostTopology(
        tuple(
            HostCell(i, frozenset({i}), 8, socket=x) for i, x in case['sockets'].items()
        )
    )
    pools = parse.pools(case['pci_stats'])
    guest = GuestTopology(
        tuple(GuestCell(i, frozenset({i}), 1) for i in range(case['guest']))
    )
    request = a_request(
        numa_topology=guest,
        pci_requests=tuple(the_request(each) for each in case['requests']),
    )
    there = a_host(numa=lambda: host, pci=lambda: pools)
    fit = fit_on_host(there, request, case['mappings'], None, Settings())
    if isinstance(fit, Fit):
        return [cell.host_cell for cell in fit.cells]
    return None


def plain(pool):
    return {**{name: getattr(pool, name) for name in OWN}, **pool.tags}


def says(answer):
    if answer is None or answer[-1] is None:
        return NO
    return YES


def devices(case, theirs, mine):
    """The same pools, or the same host cells."""
    yield Difference(case, says(theirs), says(mine), theirs, mine, mine == theirs)


@pytest.mark.parametrize(
    ('command', 'ask', 'count'),
    [('take_devices', ours, TAKEN), ('fit_devices', cells_of_ours, FITTED)],
)
def test_same_devices(command, ask, count, hardware):
    """Random requests are supported by the same pools, leave the same of them, and let
    the guest have the same host cells; what differs is listed in known.yaml."""
    comparison = Comparison(hardware, command, ask, devices, described=False)
    name = f'pci: {command.removesuffix("_devices")}'
    figures = comparison.run(name, cases(SEED), count)
    assert min(figures.outcomes[YES], figures.outcomes[NO]) > count // 10
