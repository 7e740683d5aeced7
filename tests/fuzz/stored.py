# SPDX-License-Identifier: Apache-2.0
"""Values that SQLite takes, whatever the type of a column."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.fuzz import mutation


def can_be_stored(value: Any) -> bool:
    """Whether there are no half characters, and no whole numbers of more than 64 bits."""
    if isinstance(value, str):
        return value == value.encode(errors='replace').decode()
    return not isinstance(value, int) or -(2**63) <= value < 2**63


text = mutation.text.filter(can_be_stored)
scalar = (mutation.scalar | st.binary(max_size=8)).filter(can_be_stored)
number = mutation.number.filter(lambda each: can_be_stored(each) and each == each)
"""SQLite makes null of what is no number."""
