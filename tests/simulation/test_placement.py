# SPDX-License-Identifier: Apache-2.0
"""The Placement of the simulation beside the real one: the same requests get the same
answers."""

import json
from random import Random

import os_traits
import pytest
import requests

from novasched.tools.sandbox.computes import Providers, SandboxHost, stable_uuid
from novasched.tools.sandbox.placement import serving
from tests.lab.builders import numbered_uuids
from tests.simulation.placement import Inventory, PlacementModel, Provider

TOKEN = 'admin:token'
REQUESTS = 400
HOSTS = [
    SandboxHost(f'host-{number}', vcpus=4, memory_mb=9000, zone=zone)
    for number, zone in enumerate(('zone1', 'zone2', None))
]
ZONES = [stable_uuid('aggregate', zone) for zone in ('zone1', 'zone2')]
DEVICES = {
    uuid: HOSTS[number // 3] for number, uuid in enumerate(numbered_uuids('device', 6))
}
"""The host of each device, by UUID of its provider."""
DEVICE = 'CUSTOM_DEVICE'
DEVICE_TRAITS = [os_traits.COMPUTE_MANAGED_PCI_DEVICE, os_traits.OWNER_NOVA]
CONSUMERS = numbered_uuids('server', 6)
UNKNOWN = '11111111-2222-4333-8444-555555555555'
QUERIES = (
    'resources=MEMORY_MB:1,VCPU:1',
    'resources=MEMORY_MB:4096,VCPU:2&limit=2',
    'resources=DISK_GB:1,MEMORY_MB:2048,VCPU:1&root_required=!COMPUTE_STATUS_DISABLED',
    f'resources=VCPU:1&in_tree={HOSTS[1].uuid}',
    f'resources=VCPU:1&member_of=in:{ZONES[0]},{UNKNOWN}',
    f'resources=VCPU:1&member_of=!in:{ZONES[0]},{ZONES[1]}',
    f'resources=VCPU:1&member_of={ZONES[1]}&member_of=in:{ZONES[0]},{ZONES[1]}',
    f'resources=VCPU:1&resources_a-0={DEVICE}:1&required_a-0=OWNER_NOVA',
    f'resources=VCPU:1&resources_a-0={DEVICE}:1&resources_a-1={DEVICE}:1'
    '&group_policy=none',
    f'resources=VCPU:2&resources_a={DEVICE}:1&resources_b={DEVICE}:2'
    '&group_policy=isolate',
    f'resources=VCPU:1&resources_a={DEVICE}:1&required_a=!OWNER_NOVA',
    f'resources=VCPU:1&resources_a={DEVICE}:1&limit=2',
)


class Real:
    """The real Placement."""

    def __init__(self, url):
        self._url = url
        self._http = requests.Session()
        self._http.trust_env = False

    def handle(self, method, path, body):
        """Status and body of an answer."""
        # As novasched asks.
        version = '1.36'
        if method == 'GET' and path.startswith('/allocations/'):
            version = '1.28'
        headers = {
            'X-Auth-Token': TOKEN,
            'OpenStack-API-Version': f'placement {version}',
        }
        answer = self._http.request(
            method, self._url + path, json=body, headers=headers, timeout=60
        )
        content = answer.json() if answer.content else None
        return answer.status_code, content


@pytest.fixture
def real(tmp_path):
    """The real Placement with the hosts."""
    with serving(f'sqlite:///{tmp_path / "placement.sqlite"}', TOKEN) as url:
        providers = Providers(url, TOKEN)
        for host in HOSTS:
            providers.register(host)
        providers.call('PUT', f'/resource_classes/{DEVICE}')
        for uuid, host in DEVICES.items():
            providers.call(
                'POST',
                '/resource_providers',
                uuid=uuid,
                name=uuid,
                parent_provider_uuid=host.uuid,
            )
            providers.put(uuid, inventories={DEVICE: {'total': 2}})
            providers.put(uuid, traits=DEVICE_TRAITS)
        providers.close()
        yield Real(url)


@pytest.fixture
def model():
    """The model with the hosts."""
    model = PlacementModel(HOSTS)
    for uuid, host in DEVICES.items():
        inventories = {DEVICE: Inventory(2)}
        model.add(Provider(uuid, inventories, [*DEVICE_TRAITS], root=host.uuid))
    return model


def generation_of(model, consumer, random):
    """The generation of a consumer as most writers know it, or another one."""
    known = model.consumers.get(consumer)
    right = None if known is None else known.generation
    return random.choice((right, right, right, right, None, 1, 7))


def a_body(model, consumer, random):
    """Allocations for a consumer, on a host or two; sometimes none."""
    generation = generation_of(model, consumer, random)
    allocations = {}
    for host in random.sample(HOSTS, random.choice((0, 1, 1, 1, 2))):
        memory = random.choice((1024, 4096, 8192))
        resources = {'VCPU': random.choice((1, 2, 8)), 'MEMORY_MB': memory}
        allocations[host.uuid] = {'resources': resources}
    for device in random.sample([*DEVICES], random.choice((0, 0, 1, 2))):
        allocations[device] = {'resources': {DEVICE: random.choice((1, 2))}}
    if generation is None and not allocations:
        # Placement refuses the body: a new consumer has allocations.
        allocations[HOSTS[0].uuid] = {'resources': {'VCPU': 1}}
    if random.random() < 0.03:
        allocations[UNKNOWN] = {'resources': {'VCPU': 1}}
    return {
        'allocations': allocations,
        'consumer_generation': generation,
        'project_id': 'project',
        'user_id': 'user',
    }


def a_request(model, random):
    """A random request: method, path and body."""
    consumer = random.choice(CONSUMERS)
    kind = random.choices(('PUT', 'POST', 'GET', 'DELETE', 'query'), (4, 2, 2, 1, 2))[0]
    if kind == 'query':
        return 'GET', f'/allocation_candidates?{random.choice(QUERIES)}', None
    if kind == 'POST':
        bodies = {}
        for uuid in random.sample(CONSUMERS, 2):
            bodies[uuid] = a_body(model, uuid, random)
        return 'POST', '/allocations', bodies
    body = None
    if kind == 'PUT':
        body = a_body(model, consumer, random)
    return kind, f'/allocations/{consumer}', body


def comparable(path, answer):
    """An answer without the parts that no scheduler reads: texts for people, the order
    of hosts, and the generations of providers."""
    status, content = answer
    if status >= 400:
        return status, [error.get('code') for error in content['errors']]
    if not path.startswith('/allocation_candidates'):
        for allocation in (content or {}).get('allocations', {}).values():
            del allocation['generation']
        return status, content
    offers = []
    hosts = set()
    for offer in content['allocation_requests']:
        offers.append(json.dumps(offer, sort_keys=True))
        hosts.update(offer['mappings'][''])
    offers.sort()
    summaries = content['provider_summaries']
    for summary in summaries.values():
        summary['traits'] = sorted(summary['traits'])
    if 'limit=' in path:
        # Placement chooses some of the offers, in an order of its own.
        roots = {summary['root_provider_uuid'] for summary in summaries.values()}
        return status, len(offers), roots == hosts
    return status, offers, summaries


@pytest.mark.parametrize('seed', range(2))
def test_the_placement_model_gives_the_same_answers_as_placement(real, model, seed):
    """Random requests get the same answers."""
    random = Random(seed)
    for number in range(REQUESTS):
        method, path, body = a_request(model, random)
        expected = comparable(path, real.handle(method, path, body))
        found = comparable(path, model.handle(method, path, body))
        assert found == expected, f'request {number}: {method} {path} {body}'
