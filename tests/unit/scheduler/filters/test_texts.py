# SPDX-License-Identifier: Apache-2.0
"""Texts of extra specs and of aggregates' metadata."""

import pytest

from novasched.scheduler.filters.operators import satisfies
from novasched.scheduler.filters.shared import parts, smallest
from tests.lab.builders import a_host

FLAGS = "['aes', 'avx2']"


@pytest.mark.parametrize(
    ('requirement', 'met', 'unmet'),
    [
        ('4', ['4'], ['5']),
        ('', [''], ['4']),
        ('>4', ['>4'], ['5']),
        ('= 4', ['4', '5'], ['3']),
        ('== 4', ['4.0'], ['5']),
        ('!= 4', ['5'], ['4']),
        ('>= 4', ['4'], ['3']),
        ('<= 4', ['3'], ['5']),
        ('>= 4 cores', ['4'], ['3']),
        ('s== kvm', ['kvm'], ['xen']),
        ('s!= kvm', ['xen'], ['kvm']),
        ('s< b', ['a'], ['b']),
        ('s<= b', ['b'], ['c']),
        ('s> b', ['c'], ['b']),
        ('s>= b', ['b'], ['a']),
        ('<in> avx2', [FLAGS], ["['aes']"]),
        ('<all-in> aes avx2', [FLAGS], ["['aes']"]),
        ('<or> a <or> b', ['a', 'b'], ['c']),
        ('<or> 10', ['10'], ['1']),
        ('>=', [], ['4']),
        ('<or>', [], ['4']),
        ('<in>', [], ['4']),
    ],
)
def test_operator(requirement, met, unmet):
    """A requirement starts with an operator, or is the value itself."""
    assert [satisfies(value, requirement) for value in met] == [True] * len(met)
    assert [satisfies(value, requirement) for value in unmet] == [False] * len(unmet)


@pytest.mark.parametrize(('value', 'requirement'), [('many', '>= 4'), ('4', '== four')])
def test_numbers_only(value, requirement):
    """An operator on numbers takes nothing else."""
    with pytest.raises(ValueError, match='could not convert'):
        satisfies(value, requirement)


@pytest.mark.parametrize(
    ('values', 'found'),
    [
        ([], set()),
        (['a'], {'a'}),
        (['a, b', 'b ,c'], {'a', 'b', 'c'}),
        ([''], {''}),
        (['a,,b'], {'a', '', 'b'}),
    ],
)
def test_lists_are_split_at_commas(values, found):
    """White space around an element does not count."""
    assert parts(values) == found


@pytest.mark.parametrize(
    ('metadata', 'kind', 'number'),
    [
        ([], int, 8),
        ([{'other': '3'}], int, 8),
        ([{'most': '3'}], int, 3),
        ([{'most': '3'}, {}, {'most': '20'}], int, 3),
        ([{'most': ' 3 '}], int, 3),
        ([{'most': '3'}, {'most': 'few'}], int, 8),
        ([{'most': '1.5'}], int, 8),
        ([{'most': '1.5'}], float, 1.5),
        ([{'most': '1,2'}], float, 8),
        ([{'most': ''}], float, 8),
    ],
)
def test_smallest_number_wins(metadata, kind, number):
    """Of several numbers the smallest holds; of one that is none the option."""
    assert smallest(a_host(metadata=metadata), 'most', 8, kind) == number
