# SPDX-License-Identifier: Apache-2.0
"""Assignment of distinct host cells to guest cells."""

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
def test_a_bottleneck_has_fewer_host_cells_than_guest_cells(masks, short):
    """A bottleneck is a set of guest cells with fewer host cells than guest cells."""
    assert bottleneck(masks, 0b1111) == short


def test_interchangeable_cells_are_tried_once():
    """The search asks for acceptance of different choices only, not of all choices."""
    masks = []

    def accepts(mask):
        masks.append(mask)
        return mask.bit_count() > 8

    search = Search([0xFFFF] * 8, (), accepts, ['kind'] * 16)

    assert search.first(0xFFFF) is None
    assert len(masks) < 50
