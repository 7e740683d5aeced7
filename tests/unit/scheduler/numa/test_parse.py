# SPDX-License-Identifier: Apache-2.0
"""NUMA topologies in the formats of all releases."""

import json

import pytest

from novasched.scheduler.model.numa import HostCell, HostTopology, Pages
from novasched.scheduler.numa.parse import host_topology


def an_object(name, version, **data):
    return {
        'nova_object.name': name,
        'nova_object.namespace': 'nova',
        'nova_object.version': version,
        'nova_object.data': data,
        'nova_object.changes': [],
    }


def a_text(*cells, version='1.2', name='NUMATopology'):
    objects = [an_object('NUMACell', '1.5', **cell) for cell in cells]
    return json.dumps(an_object(name, version, cells=objects))


OLDEST = {'id': 0, 'cpuset': [0, 1, 2, 3], 'memory': 2048}
NEWEST = {
    **OLDEST,
    'pcpuset': [4, 5, 6, 7],
    'cpu_usage': 1,
    'memory_usage': 512,
    'pinned_cpus': [4],
    'siblings': [[0, 1], [2, 3], [4, 5], [6, 7]],
    'socket': 1,
    'to_come': {'x': [None]},
    'mempages': [
        an_object(
            'NUMAPagesTopology', '1.1', size_kb=4, total=100, used=10, reserved=1
        ),
        an_object('NUMAPagesTopology', '1.0', size_kb=2048, total=3),
    ],
    'network_metadata': an_object(
        'NetworkMetadata', '1.0', physnets=['red'], tunneled=True
    ),
}
CPUS = frozenset({0, 1, 2, 3})
READ_OLDEST = HostCell(0, CPUS, 2048, CPUS)
READ_NEWEST = HostCell(
    0,
    CPUS,
    2048,
    frozenset({4, 5, 6, 7}),
    1,
    512,
    frozenset({4}),
    tuple(map(frozenset, ([0, 1], [2, 3], [4, 5], [6, 7]))),
    (Pages(4, 100, 10, 1), Pages(2048, 3)),
    1,
    frozenset({'red'}),
    True,
)
JUNO = {
    'cells': [
        {'id': 0, 'cpus': '0-3', 'mem': {'total': 2048, 'used': 512}, 'cpu_usage': 2}
    ]
}


@pytest.mark.parametrize(
    ('text', 'cells'),
    [
        (a_text(NEWEST), [READ_NEWEST]),
        (a_text(OLDEST), [READ_OLDEST]),
        (a_text({**OLDEST, 'pcpuset': []}), [HostCell(0, CPUS, 2048)]),
        (a_text({**OLDEST, 'socket': None}), [READ_OLDEST]),
        (
            a_text(OLDEST, {**OLDEST, 'id': 7}, version='1.99'),
            [READ_OLDEST, HostCell(7, CPUS, 2048, CPUS)],
        ),
        (json.dumps(JUNO), [HostCell(0, CPUS, 2048, CPUS, 2, 512)]),
        (
            '{"cells": [{"id": 1, "cpus": "0,1-2,^1,3", "mem": {"total": 8}}]}',
            [HostCell(1, CPUS - {1}, 8, CPUS - {1})],
        ),
    ],
)
def test_numa_topologies_of_all_releases_are_read(text, cells):
    """The parser reads current objects, objects with missing or with further fields,
    and the plain JSON of Juno and Kilo. Without ``pcpuset`` all CPUs can be pinned."""
    assert host_topology(text) == HostTopology(tuple(cells))


@pytest.mark.parametrize(
    ('text', 'words'),
    [
        ('', 'it is empty'),
        ('  ', 'it is empty'),
        ('null', 'Expected `object`, got `null`'),
        ('[]', 'Expected `object`, got `array`'),
        ('{}', 'missing required field `cells`'),
        ('nonsense', 'malformed'),
        # From Python 3.14 on, the size of the stack is the limit, not a number.
        ('{"nova_object.data":' * 1_000_000, 'nested too deeply'),
        (a_text(OLDEST)[:-9], 'truncated'),
        (a_text(), 'it has no cells'),
        ('{"cells": []}', 'it has no cells'),
        (a_text(OLDEST, version='2.0'), "'NUMATopology' '2.0' is not known"),
        (a_text(OLDEST, name='Other'), "'Other' '1.2' is not known"),
        ('{"nova_object.data": {}}', "'None' 'None' is not known"),
        (a_text(OLDEST, OLDEST), 'cells have the same id: [0, 0]'),
        (a_text({**OLDEST, 'cpuset': 'all'}), 'Expected `array`, got `str`'),
        (a_text({**OLDEST, 'cpuset': [-1]}), 'CPUs -1 to -1 are not within 0 to'),
        (a_text({**OLDEST, 'memory': None}), 'Expected `int`, got `null`'),
        (a_text({'id': 0, 'cpuset': []}), 'missing required field `memory`'),
        (
            '{"cells": [{"id": 1, "cpus": "3-0", "mem": {"total": 8}}]}',
            '3-0 is no range of CPUs',
        ),
    ],
)
def test_an_invalid_topology_is_an_error_with_a_reason(text, words):
    """The error says the reason in one line."""
    with pytest.raises(ValueError) as raised:  # noqa: PT011
        host_topology(text)
    assert words in str(raised.value)
    assert '\n' not in str(raised.value)
