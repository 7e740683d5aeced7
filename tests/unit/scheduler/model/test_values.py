# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.scheduler.model.values import cpu_set, is_true


@pytest.mark.parametrize(
    ('value', 'verdict'),
    [
        ('true', True), ('True', True), ('1', True), ('YES', True), (' on ', True), ('t', True),
        ('y', True), (True, True), (1, True), ('false', False), ('0', False), ('', False),
        ('maybe', False), (None, False), (False, False), ('2', False),
    ],
)  # fmt: skip
def test_is_true(value, verdict):
    """What oslo.utils takes for yes is yes, and all else is no."""
    assert is_true(value) is verdict


@pytest.mark.parametrize(
    ('text', 'cpus'),
    [
        ('0', {0}),
        ('0-3', {0, 1, 2, 3}),
        ('0-3,^1', {0, 2, 3}),
        ('^1,0-3', {0, 2, 3}),
        ('8, 10-11', {8, 10, 11}),
        (' 1,,2,', {1, 2}),
        ('', set()),
    ],
)
def test_cpu_set(text, cpus):
    """A list of CPUs has ranges, and exceptions in any order."""
    assert cpu_set(text) == cpus


@pytest.mark.parametrize('text', ['x', '3-1', '1-', '-1', '^', '0-99999999999', '1 2'])
def test_what_is_no_cpu_set(text):
    """Anything else is an error, and none fills our memory."""
    with pytest.raises(ValueError, match=r'invalid literal|is no range'):
        cpu_set(text)
