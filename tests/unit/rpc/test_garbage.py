# SPDX-License-Identifier: Apache-2.0
"""Messages that were damaged in one place, whatever stands there now."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import oslo_messaging
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from novasched.errors import BadRequest
from novasched.model.request import Request
from novasched.rpc import decode, versions
from tests.unit.rpc.wire import CONTEXT, MADE, decoded

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)  # fmt: skip


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to each value in a message."""
    items = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, inner in items:
        yield (*path, key)
        yield from places(inner, (*path, key))


def damaged(message: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The message with another value in one place."""
    message = copy.deepcopy(message)
    inner: Any = message
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return message


@pytest.mark.parametrize('case', MADE)
@settings(max_examples=200, deadline=None)
@given(data=st.data())
def test_damage_is_understood_or_refused(case: str, data: st.DataObject) -> None:
    """A message with a wrong value in one place is a request or a refusal, never a crash."""
    path = data.draw(st.sampled_from(list(places(MADE[case]))))
    arguments = damaged(MADE[case], path, data.draw(JSON))
    outcome: Any
    try:
        outcome = decode.request(versions.read(decoded(arguments)), CONTEXT)
    except BadRequest as error:
        outcome = error
    except oslo_messaging.ExpectedException as error:
        outcome = error.exc_info[1]
    assert isinstance(outcome, Request | BadRequest)
    if isinstance(outcome, Request):
        assert type(outcome.flavor.vcpus) is int
        assert all(isinstance(host, str) for host in outcome.force_hosts)
