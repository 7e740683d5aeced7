# SPDX-License-Identifier: Apache-2.0
"""Weighers written for nova."""

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
    """A pipeline of filters and weighers of a module, or of entry points without a
    module. Weighers may also be import paths."""
    paths = list(weighers)
    if module:
        available = [f'{module}.{name}' for name in filters]
        options['available_filters'] = tuple(available)
        for i, name in enumerate(weighers):
            if '.' not in name:
                paths[i] = f'{module}.{name}'

    settings = Settings(
        enabled_filters=tuple(filters), weight_classes=tuple(paths), **options
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
def test_weights_of_nova_weighers_and_built_in_weighers_are_added(
    weighers, options, ranked
):
    """The weights of built-in weighers and of weighers for nova are added. A weigher
    for nova has its own bounds and multiplier, and may weigh all hosts at once."""
    assert rank(pipeline(STYLE, weighers=weighers, **options), HOSTS) == ranked


@pytest.mark.parametrize(
    ('scale', 'ranked'), [('-1', ['aa', 'bbbb']), ('much', ['bbbb', 'aa'])]
)
def test_a_weigher_reads_the_multiplier_from_aggregate_metadata(scale, ranked):
    """A plugin can read its multiplier from aggregate metadata."""
    hosts = [a_host('aa'), a_host('bbbb', metadata={'name_weight_multiplier': scale})]
    assert rank(pipeline(STYLE, weighers=[NAME]), hosts) == ranked


def test_a_weigher_sees_attributes_that_a_filter_has_set():
    """A weigher sees the attributes that a filter of the same request has set on a
    host."""
    line = pipeline(STYLE, ['MeddlingFilter'], ['NoteWeigher'])
    assert rank(line, HOSTS) == ['cccccccc', 'bbbb', 'aa']
