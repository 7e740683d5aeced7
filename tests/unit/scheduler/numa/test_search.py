# SPDX-License-Identifier: Apache-2.0
"""Distinct host cells for guest cells."""

from __future__ import annotations

import pytest

from novasched.scheduler.numa.search import Search, bottleneck


@pytest.mark.parametrize(
    ('masks', 'short'),
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
def test_bottleneck(masks, short):
    """Guest cells that fit fewer host cells than they are many are found."""
    assert bottleneck(masks, 0b1111) == short


@pytest.mark.parametrize(
    ('masks', 'constraints', 'accepts', 'first'),
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
def test_first(masks, constraints, accepts, first):
    """The first choice in lexicographic order that meets all constraints and is accepted."""
    assert Search(masks, constraints, accepts).first(0b1111) == first


def test_what_is_alike_is_tried_once():
    """Acceptance is asked for so many choices as there are different ones, not for all."""
    asked = []

    def accepts(mask):
        asked.append(mask)
        return mask.bit_count() > 8

    search = Search([0xFFFF] * 8, (), accepts, ['kind'] * 16)
    assert search.first(0xFFFF) is None
    assert len(asked) < 50
