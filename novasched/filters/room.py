# SPDX-License-Identifier: Apache-2.0
"""Room on a host whose memory or disk may be overcommitted."""

from __future__ import annotations


def shortage(wanted: int, total: int, free: int, ratio: float, what: str) -> str | None:
    """Why a host has no room for ``wanted`` MiB; None if it has.

    ``ratio`` times the host's total may be given away, but never more than the total to
    one server. ``free`` is what the total leaves, below 0 on an overcommitted host.
    """
    if wanted > total:
        return f'{total} MiB of {what} before overcommit, {wanted} wanted'
    left = total * ratio - (total - free)
    return None if left >= wanted else f'{left:g} MiB of {what} free, {wanted} wanted'
