# SPDX-License-Identifier: Apache-2.0
"""nova's PciDeviceStats and novasched handle the same pools and requests."""

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
from tests.lab.builders import a_host, a_request, a_uuid, numbered_uuids
from tests.lab.descriptions import wire
from tests.parity.comparison import SEED, Comparison, Difference
from tests.parity.dice import Dice
from tests.parity.themes.topology import NUMA_POLICIES

TAKEN = 20_000
FITTED = 10_000
YES = 'yes'
NO = 'no'

KINDS = ('type-PCI', 'type-PF', 'type-VF', 'vdpa', None)
PROVIDERS = numbered_uuids('provider', 4)
ADDRESSES = ('0000:81:00.0', '0000:82:00.0')

OWN = ('vendor_id', 'product_id', 'numa_node', 'count')
"""Fields of a pool that are no tags."""


def a_pool(dice):
    """A pool with properties and tags from a few values, so that many of them match."""
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
    """The text of compute_nodes.pci_stats, by today's nova or by an older release."""
    if dice.maybe(0.3):
        return json.dumps(pools[0] if len(pools) == 1 else pools)

    objects = []
    for pool in pools:
        fields = {name: pool[name] for name in OWN}
        fields['tags'] = {name: pool[name] for name in pool if name not in OWN}
        objects.append(fields)
    return json.dumps(wire('PciDevicePoolList', {'objects': objects}))


def a_pci_request(dice, number, pools):
    """A request for a few properties of an existing pool, or of a random pool."""
    specs = []
    for _ in range(dice.one(1, 1, 1, 2)):
        like = dice.one(*pools) if pools and dice.maybe(0.8) else a_pool(dice)
        names = [x for x in like if x not in ('count', 'numa_node', 'rp_uuid')]
        spec = {name: like[name] for name in dice.some(names, 3)}
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
    """Endless cases, the same cases for the same seed."""
    for number in numbers():
        dice = Dice(f'pci {seed} {number}')
        pools = [a_pool(dice) for _ in range(dice.randint(0, 5))]
        requests = []
        for i in range(dice.one(1, 1, 2, 3)):
            requests.append(a_pci_request(dice, i, pools))

        mappings = dice.one(None, {'': [a_uuid('root')]})
        if mappings and dice.maybe():
            add_mappings(dice, mappings, requests, pools)
        yield {
            'pci_stats': stored(dice, pools),
            'requests': [wire('InstancePCIRequest', request) for request in requests],
            'mappings': mappings,
            'cells': dice.some(range(4), 2),
            'guest': dice.one(1, 1, 2, 3),
            'sockets': a_socket_table(dice),
        }


def add_mappings(dice, mappings, requests, pools):
    """Map the groups of the requests to providers, as Placement does."""
    providers = []
    for pool in pools:
        if 'rp_uuid' in pool and pool['count']:
            providers.append(pool['rp_uuid'])
    for request in requests:
        for i in range(request['count']):
            provider = dice.one(*(providers or PROVIDERS))
            mappings[f'{request["request_id"]}-{i}'] = [provider]


def a_socket_table(dice):
    """The sockets of four host cells; the last cell may be anywhere."""
    return {0: 0, 1: 0, 2: 1, 3: dice.one(0, 0, 1, 1, 1, None)}


def ours(case):
    pools = parse.pools(case['pci_stats'])
    requests = [decoded_request(primitive) for primitive in case['requests']]

    remaining = consume(
        pools, requests, case['mappings'], case['cells'], case['sockets']
    )
    if isinstance(remaining, str):
        return [False, None]
    return [True, [plain(pool) for pool in remaining]]


def decoded_request(primitive):
    data = primitive['nova_object.data']
    names = ('count', 'alias_name', 'request_id', 'numa_policy')
    return PciRequest(spec=tuple(data['spec']), **{name: data[name] for name in names})


def cells_of_ours(case):
    """The host cells of a guest that fits all cells, except for its devices."""
    host_cells = []
    for number, socket in case['sockets'].items():
        host_cells.append(HostCell(number, frozenset({number}), 8, socket=socket))
    guest_cells = []
    for number in range(case['guest']):
        guest_cells.append(GuestCell(number, frozenset({number}), 1))
    topology = HostTopology(tuple(host_cells))
    pools = parse.pools(case['pci_stats'])
    host = a_host(numa=lambda: topology, pci=lambda: pools)
    request = a_request(
        numa_topology=GuestTopology(tuple(guest_cells)),
        pci_requests=tuple(map(decoded_request, case['requests'])),
    )

    fit = fit_on_host(host, request, case['mappings'], None, Settings())
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
    """The sides agree on the remaining pools, or on the host cells."""
    yield Difference(case, says(theirs), says(mine), theirs, mine, mine == theirs)


@pytest.mark.parametrize(
    ('command', 'ask', 'count'),
    [('take_devices', ours, TAKEN), ('fit_devices', cells_of_ours, FITTED)],
)
def test_pci_requests_use_the_same_devices_as_in_nova(command, ask, count, hardware):
    """nova and novasched support the same random requests, with the same remaining
    pools, and give a guest the same host cells. known.yaml lists the differences."""
    comparison = Comparison(hardware, command, ask, devices, described=False)
    name = f'pci: {command.removesuffix("_devices")}'
    figures = comparison.run(name, cases(SEED), count)
    assert min(figures.outcomes[YES], figures.outcomes[NO]) > count // 10
