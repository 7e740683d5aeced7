# SPDX-License-Identifier: Apache-2.0
import re
from pathlib import Path

from novasched.observe.metrics import COUNTER, METRICS

TABLE = Path(__file__).parents[3] / 'doc' / 'source' / 'metrics.rst'
ROW = re.compile(r'^   \* - ``(\w+)``\n     -(.*)\n     - (\w+)\. (.*)\n', re.M)


def test_the_table_lists_exactly_the_metrics_of_the_catalogue():
    """The table has the labels, the kind and the meaning of every metric, in the order
    of the catalogue."""
    documented = []
    for name, labels, kind, meaning in ROW.findall(TABLE.read_text()):
        label_names = tuple(re.findall(r'``(\w+)``', labels))
        documented.append((name, label_names, kind.lower(), meaning))

    declared = []
    for metric in METRICS:
        declared.append((metric.name, metric.labels, metric.kind, metric.help))
    assert documented == declared


def test_metric_names_follow_the_conventions():
    """Names have the prefix of novasched. Counters alone end in ``_total``, and units
    are base units."""
    for metric in METRICS:
        assert metric.name.startswith('novasched_')
        assert metric.name.endswith('_total') is (metric.kind == COUNTER)
        assert not re.search(r'milli|micro|minutes|_ms_|_mb_|percent', metric.name)
