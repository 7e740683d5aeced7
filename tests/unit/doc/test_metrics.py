# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

from novasched.observe.metrics import COUNTER, METRICS

TABLE = Path(__file__).parents[3] / 'doc' / 'source' / 'metrics.rst'
ROW = re.compile(r'^   \* - ``(\w+)``\n     -(.*)\n     - (\w+)\. (.*)\n', re.M)


def test_the_table_names_every_metric_and_no_other():
    """With its labels, its kind and what it means, in the order of the catalogue."""
    found = [
        (name, tuple(re.findall(r'``(\w+)``', labels)), kind.lower(), help)
        for name, labels, kind, help in ROW.findall(TABLE.read_text())
    ]
    assert found == [(each.name, each.labels, each.kind, each.help) for each in METRICS]


def test_names_follow_the_conventions():
    """A prefix, and an ending that counters alone have; a unit is a base unit."""
    for each in METRICS:
        assert each.name.startswith('novasched_')
        assert each.name.endswith('_total') is (each.kind == COUNTER)
        assert not re.search(r'milli|micro|minutes|_ms_|_mb_|percent', each.name)
