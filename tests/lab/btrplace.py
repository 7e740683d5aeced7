# SPDX-License-Identifier: Apache-2.0
"""The published instances of BtrPlace (Hermenier, Lawall, Muller: BtrPlace, TDSC 2013)
as descriptions of clouds.

An instance has nodes with CPUs and memory, virtual machines on nodes, and constraints.
The nodes that are offline were lost with their machines, which are to start elsewhere.
``spread`` is an anti-affinity group. ``among`` keeps machines in one of several racks,
which are zones here: the machines of a group stay in the rack of the others.
"""

import gzip
import json
from collections import Counter, defaultdict
from dataclasses import dataclass


@dataclass(frozen=True)
class Instance:
    """An instance of the benchmark.

    :ivar description: the description of the cloud, for ``--cloud``.
    :ivar lost: the names of the lost hosts.
    """

    description: dict
    lost: frozenset[str]


@dataclass(frozen=True)
class _Nodes:
    """The nodes of an instance.

    :ivar name_of: the name of each node.
    :ivar rack_of: the rack of each node; empty without racks.
    :ivar lost: the lost nodes.
    """

    name_of: dict[int, str]
    rack_of: dict[int, int]
    lost: list[int]


def read(path):
    """The instance in a file of JSON, compressed by gzip."""
    with gzip.open(path) as file:
        content = json.load(file)
    model = content['model']
    views = {view.get('rcId'): view for view in model['views']}
    cpus = views['uCpu']
    memory = views['memory']
    apart = _of_kind(content, 'spread')
    gathered = _of_kind(content, 'among')
    kinds, nodes = _nodes(model, gathered, cpus, memory)
    host_of = _hosts_of(model, gathered, nodes)

    groups = {}
    group_of = {}
    for number, constraint in enumerate(apart):
        groups[f'spread{number}'] = {'policy': 'anti-affinity'}
        group_of.update(dict.fromkeys(constraint['vms'], f'spread{number}'))
    zone_of = {}
    for constraint in gathered:
        for machine in constraint['vms']:
            zone_of[machine] = f'rack{nodes.rack_of[host_of[machine]]}'

    flavors = {}
    servers = []
    for machine in sorted(host_of):
        size = {
            'vcpus': cpus['vms'][str(machine)],
            'memory_mb': memory['vms'][str(machine)],
        }
        flavor = f'{size["vcpus"]}-{size["memory_mb"]}'
        flavors[flavor] = size
        server = {
            'name': f'vm{machine}',
            'flavor': flavor,
            'host': nodes.name_of[host_of[machine]],
        }
        if machine in group_of:
            server['group'] = group_of[machine]
        if machine in zone_of:
            server['zone'] = zone_of[machine]
        servers.append(server)
    description = {
        'hosts': kinds,
        'flavors': flavors,
        'groups': groups,
        'servers': servers,
    }
    return Instance(description, frozenset(nodes.name_of[node] for node in nodes.lost))


def broken(description, places):
    """The rules of a description that servers break, as texts.

    :param places: the host of each server by its name.
    """
    zones = {}
    room = {}
    for kind in description['hosts']:
        for number in range(kind['number']):
            name = f'{kind["name"]}-{number:05}'
            zones[name] = kind.get('zone')
            room[name] = Counter(vcpus=kind['vcpus'], memory_mb=kind['memory_mb'])
            if kind['state'] == 'down':
                room[name] = Counter()

    found = []
    members = defaultdict(list)
    for server in description['servers']:
        host = places[server['name']]
        room[host].subtract(description['flavors'][server['flavor']])
        if server.get('zone') not in (None, zones[host]):
            found.append(f'{server["name"]} is outside of its zone')
        if 'group' in server:
            members[server['group']].append(host)
    for group, hosts in members.items():
        if len(hosts) > len(set(hosts)):
            found.append(f'{group} shares a host')
    for host, left in room.items():
        if min(left.values(), default=0) < 0:
            found.append(f'{host} has too many servers')
    return found


def _of_kind(content, kind):
    return [each for each in content['constraints'] if each['id'] == kind]


def _nodes(model, gathered, cpus, memory):
    """The kinds of hosts: one for each rack and state; and the nodes."""
    rack_of = {}
    if gathered:
        for rack, members in enumerate(gathered[0]['parts']):
            rack_of.update(dict.fromkeys(members, rack))
    mapping = model['mapping']
    lost = sorted(mapping['offlineNodes'])
    states = {int(node): 'up' for node in mapping['onlineNodes']}
    states.update(dict.fromkeys(lost, 'down'))

    kinds = {}
    name_of = {}
    for node in sorted(states):
        state = states[node]
        rack = rack_of.get(node)
        name = state if rack is None else f'rack{rack}-{state}'
        if name not in kinds:
            kinds[name] = {
                'name': name,
                'number': 0,
                'vcpus': cpus['nodes'][str(node)],
                'memory_mb': memory['nodes'][str(node)],
                'cpu_allocation_ratio': 1.0,
                'reserved_memory_mb': 0,
                'state': state,
            }
            if rack is not None:
                kinds[name]['zone'] = f'rack{rack}'
        name_of[node] = f'{name}-{kinds[name]["number"]:05}'
        kinds[name]['number'] += 1
    return [*kinds.values()], _Nodes(name_of, rack_of, lost)


def _hosts_of(model, gathered, nodes):
    """The node of each machine. The file does not tell on which lost node a machine
    was: it gets one of them, in the rack of the machines of its group."""
    mapping = model['mapping']
    host_of = {}
    for node, machines in mapping['onlineNodes'].items():
        for machine in (*machines['runningVMs'], *machines['sleepingVMs']):
            host_of[machine] = int(node)

    racks = {}
    for constraint in gathered:
        of_group = {
            nodes.rack_of[host_of[machine]]
            for machine in constraint['vms']
            if machine in host_of
        }
        if of_group:
            racks.update(dict.fromkeys(constraint['vms'], min(of_group)))

    lost_in = defaultdict(list)
    for node in nodes.lost:
        lost_in[nodes.rack_of.get(node)].append(node)
    turns = Counter()
    for machine in mapping['readyVMs']:
        rack = racks.get(machine)
        candidates = lost_in.get(rack) or nodes.lost
        host_of[machine] = candidates[turns[rack] % len(candidates)]
        turns[rack] += 1
    return host_of
