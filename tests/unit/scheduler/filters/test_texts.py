# SPDX-License-Identifier: Apache-2.0
"""The operators of extra specs."""

import pytest

from novasched.scheduler.filters.operators import satisfies

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
def test_a_requirement_is_met_according_to_the_operator(requirement, met, unmet):
    """A requirement begins with an operator, or is the value itself."""
    for value in met:
        assert satisfies(value, requirement) is True
    for value in unmet:
        assert satisfies(value, requirement) is False
