# SPDX-License-Identifier: Apache-2.0
from types import SimpleNamespace

import pytest

from novasched.cells.reports import Report
from novasched.cells.rows import NUMA, PCI


def row(node, text):
    return SimpleNamespace(
        hypervisor_hostname=node, column=text, numa_topology=text, pci_stats=text
    )


class Parser:
    """Counts what it is asked."""

    def __init__(self):
        self.asked = []

    def __call__(self, text):
        self.asked.append(text)
        if text == 'broken':
            raise ValueError('it is broken')
        return [text]


def test_read_when_somebody_looks():
    """A text is parsed for the first who looks, and hosts with the same text share what it
    says."""
    report = Report('column', parse := Parser(), None)
    one, two, other = (report.of(row(*each)) for each in [('a', 'x'), ('b', 'x'), ('c', 'y')])
    assert parse.asked == []
    assert one() is two() is one()
    assert other() == ['y']
    assert parse.asked == ['x', 'y']


def test_remembered_as_long_as_it_is_reported():
    """The next request parses nothing, however many nodes there are; a text that no node
    reports any more is forgotten."""
    report = Report('column', parse := Parser(), None)
    for _ in range(2):
        for number in range(12_000):
            report.of(row(f'node{number}', f'text{number}'))()
    assert len(parse.asked) == 12_000
    for text in ('new', 'text1'):
        report.of(row('node1', text))()
    assert parse.asked[12_000:] == ['new', 'text1']


def test_one_warning_for_a_text(caplog):
    """What cannot be read is absent, and the log names the first host that reports it."""
    report = Report('column', Parser(), None)
    assert [report.of(row(node, 'broken'))() for node in 'aba'] == [None, None, None]
    (line,) = [record.getMessage() for record in caplog.records]
    assert line == 'Column column of compute node a cannot be read: it is broken'


@pytest.mark.parametrize(
    ('report', 'text', 'why'),
    [
        (NUMA, 'x', 'malformed'),
        (NUMA, '', 'it is empty'),
        (NUMA, '{"nova_object.name": "NUMATopology", "nova_object.version": "2.0", "nova_object.data": {"cells": []}}', "'NUMATopology' '2.0'"),
        (NUMA, None, None),
        (PCI, 'x', 'no JSON'),
        (PCI, '', None),
        (PCI, None, None),
    ],
)  # fmt: skip
def test_columns(report, text, why, caplog):
    """A host that reports nothing is an ordinary one; one that reports nonsense is named."""
    assert not report.of(row('host7', text))()
    assert ('host7' in caplog.text) is (why is not None)
    assert (why or '') in caplog.text
