# SPDX-License-Identifier: Apache-2.0
"""Memory of guest cells on host cells, by pages where the host counts them."""

from __future__ import annotations

from collections.abc import Sequence

from novasched.model.numa import ANY_PAGES, LARGE_PAGES, SMALL_PAGES, GuestCell, HostCell, Pages
from novasched.numa.lack import Lack

KIB = 1024
"""KiB in a MiB."""


def page_size(host: HostCell, guest: GuestCell) -> int | Lack | None:
    """The page size in KiB that the guest cell gets; None where it asks for none.

    A page size that is asked for is never overcommitted. Without one, memory is taken in the
    smallest pages, and up to all of the cell: guests may not overcommit against themselves,
    and pinned ones not at all.
    """
    if guest.pagesize:
        return _asked_for(host, guest, guest.pagesize)
    if host.mempages:
        smallest = min(host.mempages)
        return _lack(smallest, guest.memory * KIB, free=guest.is_pinned)
    room = host.free_memory if guest.is_pinned else host.memory
    return Lack('MiB of memory', guest.memory - room) if room < guest.memory else None


def _asked_for(host: HostCell, guest: GuestCell, size: int) -> int | Lack:
    kib = guest.memory * KIB
    least: Lack | None = None
    for pages in _candidates(host.mempages, size):
        lack = _lack(pages, kib, free=True)
        if lack is None:
            return pages.size_kb
        least = least or lack
    return least or Lack(f'{_NAMES.get(size, f"pages of {size} KiB")}')


_NAMES = {SMALL_PAGES: 'counted pages', LARGE_PAGES: 'large pages', ANY_PAGES: 'counted pages'}


def _candidates(mempages: Sequence[Pages], size: int) -> Sequence[Pages]:
    """The kinds of pages to try: ``any`` begins with the largest, ``large`` is any but the
    smallest."""
    if size not in _NAMES:
        return [pages for pages in mempages if pages.size_kb == size][:1]
    descending = sorted(mempages, reverse=True)
    if size == SMALL_PAGES:
        return descending[-1:]
    return descending[:-1] if size == LARGE_PAGES else descending


def _lack(pages: Pages, kib: int, free: bool) -> Lack | None:
    if kib % pages.size_kb:
        return Lack(f'pages that divide its memory: {pages.size_kb} KiB do not')
    missing = kib // pages.size_kb - (pages.free if free else pages.total)
    return Lack(f'pages of {pages.size_kb} KiB', missing) if missing > 0 else None
