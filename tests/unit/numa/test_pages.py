# SPDX-License-Identifier: Apache-2.0
"""The pages that a guest cell's memory is taken from."""

from __future__ import annotations

import pytest

from novasched.model.numa import GuestCell
from novasched.numa.pages import page_size
from tests.unit.numa.topologies import a_cell, some_pages

GIB = 1048576
SEVERAL = (
    some_pages(2048, 512, used=100, reserved=12),
    some_pages(4, GIB, used=1),
    some_pages(GIB, 1),
)


@pytest.mark.parametrize(
    ('mempages', 'memory', 'asked', 'got'),
    [
        (SEVERAL, 64, -1, 4),
        (SEVERAL, 1024, -2, GIB),
        (SEVERAL, 800, -2, 2048),
        (SEVERAL, 1024, -3, GIB),
        (SEVERAL, 1025, -3, 4),
        (SEVERAL, 800, 2048, 2048),
        (SEVERAL, 802, 2048, ('pages of 2048 KiB', 1)),
        (SEVERAL, 801, 2048, ('pages that divide its memory: 2048 KiB do not', None)),
        (SEVERAL, 64, 8, ('pages of 8 KiB', None)),
        (SEVERAL, 64, -7, ('pages of -7 KiB', None)),
        (SEVERAL, 4096, -1, ('pages of 4 KiB', 1)),
        (SEVERAL, 4096, None, None),
        (SEVERAL, 4097, None, ('pages of 4 KiB', 256)),
        (SEVERAL[1:2], 64, -2, ('large pages', None)),
        ((), 64, -1, ('counted pages', None)),
        ((), 4096, None, None),
        ((), 4096, 0, None),
    ],
)  # fmt: skip
def test_page_size(mempages, memory, asked, got):
    """Small is the smallest, large any other, any the largest that has room; memory that
    asks for no pages may be overcommitted."""
    host = a_cell(mempages=mempages, memory_usage=4000)
    assert page_size(host, GuestCell(0, frozenset({0}), memory, pagesize=asked)) == got


@pytest.mark.parametrize(
    ('mempages', 'memory', 'got'),
    [
        (SEVERAL, 4096, ('pages of 4 KiB', 1)),
        (SEVERAL, 4095, None),
        ((), 97, ('MiB of memory', 1)),
        ((), 96, None),
    ],
)
def test_pinned_guests_overcommit_nothing(mempages, memory, got):
    """They need free memory, page size or no."""
    host = a_cell(mempages=mempages, memory_usage=4000)
    guest = GuestCell(0, frozenset(), memory, frozenset({0}), cpu_policy='dedicated')
    assert page_size(host, guest) == got
