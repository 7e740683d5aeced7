# SPDX-License-Identifier: Apache-2.0
"""Weighers that were written for nova."""

from random import Random

import pytest

from novasched.conf.settings import Settings
from novasched.plugins import loading
from novasched.scheduler.pipeline import Pipeline
from tests.lab.builders import a_host, a_request

STYLE = 'tests.unit.plugins.nova_style'
NAME = 'NameWeigher'
LAST = 'LastWeigher'
RAM = 'nova.scheduler.weights.ram.RAMWeigher'
HOSTS = [a_host('aa', ram=4096), a_host('bbbb', ram=2048), a_host('cccccccc', ram=1024)]


def pipeline(module='', filters=(), weighers=(), **options):
    """Filters by name and weighers by name or path, of a module or by their entry
    points."""
    available = {'available_filters': tuple(f'{module}.{name}' for name in filters)}
    settings = Settings(
        enabled_filters=tuple(filters),
        weight_classes=tuple(
            f'{module}.{x}' if module and '.' not in x else x for x in weighers
        ),
        **(available if module else {}),
        **options,
    )
    return Pipeline(settings, loading.filters(settings), loading.weighers(settings))


def rank(line, hosts):
    """The names of the hosts, best first."""
    ranked = line.for_request().rank(hosts, a_request(), 0, Random(1)).hosts
    return [host.host for host in ranked]


@pytest.mark.parametrize(
    ('weighers', 'options', 'ranked'),
    [
        ([NAME], {}, ['bbbb', 'cccccccc', 'aa']),
        ([LAST], {}, ['cccccccc', 'bbbb', 'aa']),
        ([LAST, RAM], {}, ['cccccccc', 'bbbb', 'aa']),
        ([LAST, RAM], {'ram_weight_multiplier': 9.0}, ['aa', 'bbbb', 'cccccccc']),
        ([NAME, RAM], {'ram_weight_multiplier': 0.5}, ['bbbb', 'cccccccc', 'aa']),
    ],
)
def test_ranks(weighers, options, ranked):
    """Weighers of both kinds add up; a weigher's bounds, its multiplier and what it
    says of all hosts at once are its own."""
    assert rank(pipeline(STYLE, weighers=weighers, **options), HOSTS) == ranked


@pytest.mark.parametrize(
    ('scale', 'ranked'), [('-1', ['aa', 'bbbb']), ('much', ['bbbb', 'aa'])]
)
def test_a_multiplier_for_each_host(scale, ranked):
    """A plugin that looks for its multiplier in aggregates finds it there."""
    hosts = [a_host('aa'), a_host('bbbb', metadata={'name_weight_multiplier': scale})]
    assert rank(pipeline(STYLE, weighers=[NAME]), hosts) == ranked


def test_a_filter_leaves_notes_for_a_weigher():
    """What a filter leaves on a host, a weigher of the same request finds."""
    line = pipeline(STYLE, ['MeddlingFilter'], ['NoteWeigher'])
    assert rank(line, HOSTS) == ['cccccccc', 'bbbb', 'aa']
