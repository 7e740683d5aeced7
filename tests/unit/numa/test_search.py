# SPDX-License-Identifier: Apache-2.0
"""Distinct positions for a row of takers."""

from __future__ import annotations

import pytest

from novasched.numa.search import Search, shortage


@pytest.mark.parametrize(
    ('wanted', 'short'),
    [
        ([0b1], None),
        ([0b11, 0b01], None),
        ([0b111, 0b011, 0b001], None),
        ([0b01, 0b01], (0b11, 0b01)),
        ([0b0110, 0b1001, 0b0110, 0b0110], (0b1101, 0b0110)),
        ([0b0], (0b1, 0b0)),
        ([0b10000], (0b1, 0b0)),
    ],
)
def test_shortage(wanted, short):
    """Takers that accept fewer positions than they are many are found."""
    assert shortage(wanted, 0b1111) == short


@pytest.mark.parametrize(
    ('wanted', 'needs', 'approve', 'first'),
    [
        ([0b1111, 0b1111], (), None, (0, 1)),
        ([0b1111, 0b0001], (), None, (1, 0)),
        ([0b0011, 0b0110, 0b0101], (), None, (0, 1, 2)),
        ([0b0011, 0b0001, 0b1111], (), None, (1, 0, 2)),
        ([0b1111, 0b1111], (0b1000,), None, (0, 3)),
        ([0b1111, 0b1111], (0b1100, 0b0110), None, (0, 2)),
        ([0b1111, 0b1111], (0b0001, 0b0010, 0b0100), None, None),
        ([0b0011, 0b0011], (0b1000,), None, None),
        ([0b1111, 0b1111], (), lambda mask: mask & 0b1010 == 0b1010, (1, 3)),
        ([0b1111, 0b1111], (), lambda mask: mask.bit_count() > 2, None),
        ([0b1111, 0b1111], (0b0001,), lambda mask: bool(mask & 0b0100), (0, 2)),
        ([0b1111, 0b1111], (0b0001,), lambda mask: False, None),
    ],
)
def test_first(wanted, needs, approve, first):
    """The first choice in lexicographic order that hits all needs and is approved."""
    assert Search(wanted, needs, approve).first(0b1111) == first


def test_what_is_alike_is_tried_once():
    """Approval is asked for so many choices as there are different ones, not for all."""
    asked = []

    def approve(mask):
        asked.append(mask)
        return mask.bit_count() > 8

    search = Search([0xFFFF] * 8, (), approve, ['alike'] * 16)
    assert search.first(0xFFFF) is None
    assert len(asked) < 50
