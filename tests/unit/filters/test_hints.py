# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.filters.hints import is_given, single
from tests.builders import a_request


@pytest.mark.parametrize(
    ('values', 'given'),
    [([], False), ([''], False), (['a'], True), (['a', 'b'], True), (['', ''], True)],
)
def test_one_empty_text_is_no_hint(values, given):
    """A hint is given where it has a value."""
    assert is_given(a_request(hints={'near': values}), 'near') is given
    assert not is_given(a_request(), 'near')


@pytest.mark.parametrize(
    ('hints', 'value'), [({}, 'here'), ({'near': []}, 'here'), ({'near': ['a']}, 'a')]
)
def test_single_value(hints, value):
    """A hint that is not given has the default."""
    assert single(a_request(hints=hints), 'near', 'here') == value


def test_several_values_where_one_is_taken():
    """The text says which hint it is."""
    with pytest.raises(ValueError, match='near takes one value, not 2'):
        single(a_request(hints={'near': ['a', 'b']}), 'near')
