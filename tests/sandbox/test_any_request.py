# SPDX-License-Identifier: Apache-2.0
"""Any request gets an answer, and Placement agrees with the answer."""

from importlib.metadata import entry_points

import pytest
import sqlalchemy as sa
from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.flavor import Flavor
from novasched.tools.sandbox import databases as tables
from novasched.tools.sandbox.cloud import NoAnswer, Sandbox
from novasched.tools.sandbox.computes import SandboxHost
from tests.lab import request_keys

MACHINES = [
    SandboxHost('host0', cell='cell0'),
    SandboxHost('host1', zone='az1', cell='cell1'),
    SandboxHost('host2', cell='cell0'),
    SandboxHost('host3', zone='az1', cell='cell1'),
]
METADATA = {
    'max_io_ops_per_host': 'few',
    'ram_weight_multiplier': 'heavy',
    'cpu_allocation_ratio': '',
    'filter_tenant_id': 'sandbox-project, another',
    'ssd': 'true,yes',
}

word = st.sampled_from(
    [
        '',
        ' ',
        '4',
        '-1',
        '1e999',
        'nan',
        'true',
        '<in>',
        '<or>',
        '>=',
        '>= x',
        's== kvm',
        '<all-in> a b',
        '<or> 1 <or> 2',
        'required',
        'forbidden',
        'dedicated',
        'mixed',
        'isolate',
        '^0',
        '0-9999999999',
        '[]',
        '{}',
        '["=", "$free_ram_mb", 4]',
        '["<"]',
        '["not", ["and"]]',
        '$',
        'host1',
        '/24',
        '\n',
        '\x00',
    ]
)
text = word | st.text(max_size=12)


@pytest.fixture(scope='module')
def everything():
    """A cloud with every filter except the Exact ones, and with strange metadata on the
    aggregate of a zone. At least one request finds a host."""
    every = sorted(entry_points(group='novasched.filters').names)
    names = [name for name in every if not name.startswith('Exact')]
    options = {'enabled_filters': ','.join(names), 'max_instances_per_host': 10**6}
    with Sandbox(MACHINES, {'filter_scheduler': options}) as cloud:
        rows = []
        for key, value in METADATA.items():
            rows.append({'aggregate_id': 1, 'key': key, 'value': value})
        with cloud.databases.api.begin() as connection:
            connection.execute(sa.insert(tables.aggregate_metadata), rows)
        placed = []
        problems = []
        yield cloud, placed, problems
        assert placed


@settings(max_examples=50)
@given(
    vcpus=st.integers(0, 40),
    memory_mb=st.integers(0, 4096),
    count=st.integers(1, 3),
    extra_specs=st.dictionaries(request_keys.extra_spec | text, text, max_size=3),
    image=st.dictionaries(request_keys.image_property, text, max_size=2),
    hints=st.dictionaries(request_keys.hint, st.lists(text, max_size=2), max_size=2),
    policy=st.none()
    | st.sampled_from(['affinity', 'anti-affinity', 'soft-affinity', 'odd']),
    rules=st.dictionaries(
        st.just('max_server_per_host'), st.sampled_from(['1', '2', 'x', '']), max_size=1
    ),
    zone=st.none() | st.sampled_from(['az1', 'nowhere', '']),
    names=st.dictionaries(
        st.sampled_from(['force_hosts', 'force_nodes', 'ignore_hosts']),
        st.lists(st.sampled_from(['host0', 'HOST1', 'nobody', '']), max_size=2),
        max_size=1,
    ),
)
def test_allocations_match_the_answer_to_any_request(
    everything,
    vcpus,
    memory_mb,
    count,
    extra_specs,
    image,
    hints,
    policy,
    rules,
    zone,
    names,
):
    """A request gets hosts, a refusal or a clear error. Allocations match the answers,
    no error is logged, and the next request is served."""
    cloud, placed, problems = everything
    flavor = Flavor('f', 'f', 1, vcpus, memory_mb, extra_specs=extra_specs)
    group = cloud.group(policy, **rules) if policy else None
    asked = {'image_properties': image, 'scheduler_hints': hints, **names}
    try:
        cloud.boot(flavor, count, zone=zone, group=group, **asked)
    except BadRequest:
        pass
    except NoAnswer as error:
        if 'BadRequest' not in str(error):
            raise
    known = [*problems]
    problems[:] = cloud.problems()

    assert problems == known

    for boot in cloud.boots:
        for server in boot.servers:
            cloud.placement.call('DELETE', f'/allocations/{server.uuid}')
            placed.append(server.uuid)
    cloud.boots.clear()
