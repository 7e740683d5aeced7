# SPDX-License-Identifier: Apache-2.0
"""Weighers that were written for nova."""

from random import Random

import pytest

from novasched import plugins
from novasched.model.settings import Settings
from novasched.pipeline import Pipeline
from tests.builders import a_host, a_request

STYLE = 'tests.unit.plugins.nova_style'
NAME, RAM = f'{STYLE}.NameWeigher', 'nova.scheduler.weights.ram.RAMWeigher'
HOSTS = [a_host('aa', ram=4096), a_host('bbbb', ram=2048), a_host('cccccccc', ram=1024)]


def rank(hosts, *weighers, **options):
    settings = Settings(weight_classes=weighers, **options)
    line = Pipeline(settings, [], plugins.weighers(settings))
    request = a_request()
    ranked = line.for_request({}).rank(hosts, request, 0, Random(1))
    assert line.rank(hosts, request, 0, Random(1)) == ranked
    return [host.host for host in ranked]


@pytest.mark.parametrize(
    ('weighers', 'options', 'ranked'),
    [
        ([NAME], {}, ['bbbb', 'cccccccc', 'aa']),
        ([f'{STYLE}.LastWeigher'], {}, ['cccccccc', 'bbbb', 'aa']),
        ([f'{STYLE}.LastWeigher', RAM], {}, ['cccccccc', 'bbbb', 'aa']),
        ([f'{STYLE}.LastWeigher', RAM], {'ram_weight_multiplier': 9.0}, ['aa', 'bbbb', 'cccccccc']),
        ([NAME, RAM], {'ram_weight_multiplier': 0.5}, ['bbbb', 'cccccccc', 'aa']),
        ([RAM], {}, ['aa', 'bbbb', 'cccccccc']),
    ],
)
def test_ranks(weighers, options, ranked):
    """Weighers of both kinds add up; a weigher's bounds, its multiplier and what it says of
    all hosts at once are its own."""
    assert rank(HOSTS, *weighers, **options) == ranked


def test_a_multiplier_for_each_host():
    """A plugin that looks for its multiplier in aggregates finds it there."""
    hosts = [a_host('aa'), a_host('bbbb', metadata={'name_weight_multiplier': '-1'})]
    assert rank(hosts, NAME) == ['aa', 'bbbb']
    hosts = [a_host('aa'), a_host('bbbb', metadata={'name_weight_multiplier': 'much'})]
    assert rank(hosts, NAME) == ['bbbb', 'aa']


def test_a_filter_leaves_notes_for_a_weigher():
    """What a filter leaves on a host, a weigher of the same request finds."""
    settings = Settings(
        available_filters=(f'{STYLE}.MeddlingFilter',),
        enabled_filters=('MeddlingFilter',),
        weight_classes=(f'{STYLE}.NoteWeigher',),
    )
    line = Pipeline(settings, plugins.filters(settings), plugins.weighers(settings))
    ranked = line.for_request({}).rank(HOSTS, a_request(), 0, Random(1))
    assert [host.host for host in ranked] == ['cccccccc', 'bbbb', 'aa']
