# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.scheduler.filters.operators import satisfies


@pytest.mark.parametrize(
    ('value', 'requirement', 'met'),
    [
        ('4', '4', True),
        ('4', '5', False),
        ('', '', True),
        ('4', '= 4', True),
        ('5', '= 4', True),
        ('3', '= 4', False),
        ('4.0', '== 4', True),
        ('5', '== 4', False),
        ('5', '!= 4', True),
        ('4', '!= 4', False),
        ('4', '>= 4', True),
        ('3', '>= 4', False),
        ('3', '<= 4', True),
        ('5', '<= 4', False),
        ('kvm', 's== kvm', True),
        ('kvm', 's!= kvm', False),
        ('a', 's< b', True),
        ('b', 's< b', False),
        ('b', 's<= b', True),
        ('c', 's> b', True),
        ('b', 's> b', False),
        ('b', 's>= b', True),
        ("['aes', 'avx2']", '<in> avx2', True),
        ("['aes', 'avx2']", '<in> sse9', False),
        ("['aes', 'avx2']", '<all-in> aes avx2', True),
        ("['aes', 'avx2']", '<all-in> aes sse9', False),
        ('b', '<or> a <or> b', True),
        ('c', '<or> a <or> b', False),
        ('10', '<or> 10', True),
        ('4', '>=', False),
        ('4', '<or>', False),
        ('4', '<in>', False),
        ('4', '>= 4 cores', True),
        ('>4', '>4', True),
    ],
)
def test_operator(value, requirement, met):
    """A requirement starts with an operator, or is the value itself."""
    assert satisfies(value, requirement) is met


@pytest.mark.parametrize(('value', 'requirement'), [('many', '>= 4'), ('4', '== four')])
def test_numbers_only(value, requirement):
    """An operator on numbers takes nothing else."""
    with pytest.raises(ValueError, match='could not convert'):
        satisfies(value, requirement)
