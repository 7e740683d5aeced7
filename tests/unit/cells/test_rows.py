# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import pytest

from novasched.cells import rows
from novasched.cells.rows import LazyColumn
from novasched.conf.settings import Settings
from novasched.scheduler.model.host import Service

NODE = {
    'id': 7,
    'uuid': 'u',
    'host': 'h',
    'hypervisor_hostname': 'h.example',
    'vcpus': 8,
    'vcpus_used': 3,
    'memory_mb': 8192,
    'free_ram_mb': 4096,
    'local_gb': 100,
    'local_gb_used': 40,
    'free_disk_gb': 60,
    'disk_available_least': None,
    'hypervisor_type': 'QEMU',
    'hypervisor_version': 8002002,
    'cpu_info': '{}',
    'host_ip': '192.0.2.7',
    'supported_instances': '[["x86_64", "kvm", "hvm"]]',
    'metrics': '[]',
    'stats': '{}',
    'numa_topology': None,
    'pci_stats': None,
    'cpu_allocation_ratio': 4.0,
    'ram_allocation_ratio': 1.5,
    'disk_allocation_ratio': 1.0,
}


def host(settings=None, **changes):
    row = SimpleNamespace(**{**NODE, **changes})
    return rows.host(row, 'cell', Service('h'), settings or Settings())


@pytest.mark.parametrize(
    ('changes', 'attribute', 'value'),
    [
        ({}, 'free_ram_mb', 4096),
        ({}, 'total_usable_ram_mb', 8192),
        ({}, 'free_disk_mb', 60 * 1024),
        ({'disk_available_least': 20}, 'free_disk_mb', 20 * 1024),
        ({'disk_available_least': 80}, 'free_disk_mb', 60 * 1024),
        ({'disk_available_least': -5}, 'free_disk_mb', -5 * 1024),
        ({}, 'disk_mb_used', 40 * 1024),
        ({}, 'supported_instances', (('x86_64', 'kvm', 'hvm'),)),
        ({'supported_instances': None}, 'supported_instances', ()),
        (
            {'supported_instances': '["kvm", ["x86_64", {}, 1]]'},
            'supported_instances',
            (('x86_64', '{}', '1'),),
        ),
        (
            {
                'supported_instances': '[["AMD64", "xapi", "baremetal"], '
                '["i386", "baremetal", "pv", "x"]]'
            },
            'supported_instances',
            (('x86_64', 'xen', 'hvm'), ('i686', 'baremetal', 'xen')),
        ),
        ({'stats': '{"num_instances": "3", "io_workload": 2}'}, 'num_instances', 3),
        ({'stats': '{"num_instances": "3", "io_workload": 2}'}, 'num_io_ops', 2),
        ({'stats': '{"failed_builds": "x"}'}, 'failed_builds', 0),
        ({'stats': None}, 'num_instances', 0),
        (
            {'stats': '{"io_workload": 2, "arch": "x", "none": null, "nested": "{}"}'},
            'stats',
            {'io_workload': '2', 'arch': 'x', 'none': None, 'nested': '{}'},
        ),
        ({'stats': '{broken'}, 'stats', {}),
        ({'stats': '[]'}, 'stats', {}),
        (
            {'metrics': '[{"name": "m", "value": 1}]'},
            'metrics',
            ({'name': 'm', 'value': 1},),
        ),
        ({'cpu_allocation_ratio': 0.0}, 'cpu_allocation_ratio', 4.0),
        ({'ram_allocation_ratio': None}, 'ram_allocation_ratio', 1.0),
    ],
)
def test_columns_of_a_row_become_the_attributes_of_a_host(
    changes, attribute, value, caplog
):
    """The columns of a row become the attributes of nova's HostState. A column that
    cannot be read counts as empty, and the log names node and column."""
    assert getattr(host(**changes), attribute) == value
    told = 'Column stats of compute node h.example cannot be read' in caplog.text
    assert told is (value == {})


def test_the_ratio_option_counts_before_the_initial_ratio():
    """If a host reports no ratio, the option counts, and if the option is unset, the
    initial ratio."""
    settings = Settings(cpu_allocation_ratio=16.0)
    assert host(settings, cpu_allocation_ratio=None).cpu_allocation_ratio == 16.0


def row(node, text):
    columns = dict.fromkeys(('column', 'numa_topology', 'pci_stats'), text)
    return SimpleNamespace(hypervisor_hostname=node, **columns)


class Parser:
    """Keeps the texts that it has parsed."""

    def __init__(self):
        self.asked = []

    def __call__(self, text):
        self.asked.append(text)
        if text == 'broken':
            raise ValueError('it is broken')
        return [text]


def test_a_lazy_column_is_parsed_on_the_first_call():
    """A text is parsed on the first call. Hosts with equal texts share the value."""
    column = LazyColumn('column', parse := Parser(), None)
    one = column.of(row('a', 'x'))
    two = column.of(row('b', 'x'))
    other = column.of(row('c', 'y'))
    assert parse.asked == []

    assert one() is two() is one()
    assert other() == ['y']
    assert parse.asked == ['x', 'y']


def test_a_parsed_text_is_kept_while_a_host_reports_the_text():
    """A text is parsed once, no matter how many hosts are read how often. A text that
    no host in memory reports is forgotten."""
    column = LazyColumn('column', parse := Parser(), None)
    hosts = {}
    for number in [*range(12_000)] * 2:
        hosts[number] = column.of(row(f'node{number}', f'text{number}'))
        hosts[number]()
    assert len(parse.asked) == 12_000

    for text in ('new', 'text1'):
        hosts[1] = column.of(row('node1', text))
        hosts[1]()
    assert parse.asked[12_000:] == ['new', 'text1']


def test_an_unreadable_text_causes_a_single_warning(caplog):
    """A text that cannot be read counts as absent, and the log names its first host."""
    column = LazyColumn('column', Parser(), None)
    hosts = [column.of(row(node, 'broken')) for node in 'aba']
    assert [host() for host in hosts] == [None, None, None]
    (line,) = caplog.messages
    assert line == 'Column column of compute node a cannot be read: it is broken'


@pytest.mark.parametrize(
    ('column', 'text', 'why'),
    [
        (rows.NUMA_TOPOLOGY, 'x', 'malformed'),
        (rows.NUMA_TOPOLOGY, '', 'it is empty'),
        (
            rows.NUMA_TOPOLOGY,
            '{"nova_object.name": "NUMATopology", "nova_object.version": "2.0", '
            '"nova_object.data": {"cells": []}}',
            "'NUMATopology' '2.0'",
        ),
        (rows.NUMA_TOPOLOGY, None, None),
        (rows.PCI_STATS, 'x', 'no JSON'),
        (rows.PCI_STATS, '', None),
        (rows.PCI_STATS, None, None),
    ],
)
def test_an_invalid_numa_or_pci_column_is_logged_with_the_host(
    column, text, why, caplog
):
    """A host without a value is an ordinary host. A host with an invalid value is named
    in the log."""
    assert not column.of(row('host7', text))()
    assert ('host7' in caplog.text) is (why is not None)
    assert (why or '') in caplog.text
