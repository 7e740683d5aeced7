# SPDX-License-Identifier: Apache-2.0
"""The documentation for authors of plugins lists all members of the base classes."""

import re
from pathlib import Path

import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.filters import Filter, shared
from novasched.scheduler.plugin import Plugin
from novasched.scheduler.prefilters import Prefilter
from novasched.scheduler.weighers import BatchWeigher, CandidatesWeigher, Weigher
from tests.lab.prefilter_sources import sources

SOURCE = Path(__file__).parents[3] / 'doc' / 'source'
TERM = re.compile(r'``(\w+)(?:\([\w, *]*\))?``')
"""A member in the documentation: an attribute, or a method with its parameters."""
BASES = [
    ('filter.rst', Plugin),
    ('filter.rst', Filter),
    ('filter.rst', shared.KeyedFilter),
    ('filter.rst', shared.AggregatesFilter),
    ('filter.rst', shared.CandidateFilter),
    ('filter.rst', shared.BatchFilter),
    ('weigher.rst', Plugin),
    ('weigher.rst', Weigher),
    ('weigher.rst', CandidatesWeigher),
    ('weigher.rst', BatchWeigher),
    ('prefilter.rst', Prefilter),
]


def members_of(class_):
    """The public members that a class itself declares."""
    declared = {*vars(class_), *getattr(class_, '__annotations__', ())}
    return {name for name in declared if not name.startswith('_')}


@pytest.mark.parametrize(('page', 'base'), BASES)
def test_a_page_lists_every_member(page, base):
    terms = set(TERM.findall((SOURCE / page).read_text()))
    assert members_of(base) - terms == set()


@pytest.mark.parametrize(
    ('page', 'plugin'),
    [
        ('filter.rst', Filter(Settings())),
        ('weigher.rst', Weigher(Settings())),
        ('prefilter.rst', Prefilter(Settings(), sources())),
    ],
)
def test_a_page_lists_the_attributes_of_objects(page, plugin):
    terms = set(TERM.findall((SOURCE / page).read_text()))
    assert vars(plugin)
    assert vars(plugin).keys() - terms == set()


@pytest.mark.parametrize('page', ['filter.rst', 'weigher.rst', 'prefilter.rst'])
def test_tables_name_no_member_that_does_not_exist(page):
    """The first column of a table has members and base classes."""
    existing = {'settings', 'sources'}
    for _, base in BASES:
        existing |= {base.__name__, *members_of(base)}

    rows = re.findall(r'^   \* - (.+)$', (SOURCE / page).read_text(), re.M)
    names = set(TERM.findall(' '.join(rows)))
    assert names
    assert names - existing == set()
