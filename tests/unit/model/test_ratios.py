# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.model.ratios import parse


@pytest.mark.parametrize(
    ('setting', 'good', 'bad'),
    [
        ([], (), ()),
        (['a=1', 'b=-0.5'], (('a', 1.0), ('b', -0.5)), ()),
        (['b=1', 'a=1', 'b=2'], (('b', 1.0), ('a', 1.0), ('b', 2.0)), ()),
        (['a= 1e2'], (('a', 100.0),), ()),
        (['a', 'a=', '=1', 'a=b', 'a=1=2'], (), ('a', 'a=', '=1', 'a=b', 'a=1=2')),
    ],
)
def test_parse(setting, good, bad):
    """Names with numbers in their order, and whatever is neither."""
    assert parse(setting) == (good, bad)
