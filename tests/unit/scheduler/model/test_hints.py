# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.lab.builders import a_request


@pytest.mark.parametrize(
    ('values', 'given'),
    [([], False), ([''], False), (['a'], True), (['a', 'b'], True), (['', ''], True)],
)
def test_one_empty_text_is_no_hint(values, given):
    """A hint is given where it has a value."""
    assert a_request(hints={'near': values}).has_hint('near') is given
    assert not a_request().has_hint('near')


@pytest.mark.parametrize(
    ('hints', 'value'), [({}, 'here'), ({'near': []}, 'here'), ({'near': ['a']}, 'a')]
)
def test_single_value(hints, value):
    """A hint that is not given has the default."""
    assert a_request(hints=hints).single_hint('near', 'here') == value


def test_several_values_where_one_is_taken():
    """The text says which hint it is."""
    with pytest.raises(ValueError, match='near takes one value, not 2'):
        a_request(hints={'near': ['a', 'b']}).single_hint('near')
