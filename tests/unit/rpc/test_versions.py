# SPDX-License-Identifier: Apache-2.0
"""Calls of each version, by their arguments."""

from __future__ import annotations

from typing import Any

import pytest

from novasched import objects
from novasched.errors import BadRequest
from novasched.rpc.versions import LATEST, Call, read, take

SPEC = objects.RequestSpec()
DICTS: dict[str, Any] = {'request_spec': {'num_instances': 1}, 'filter_properties': {}}


@pytest.mark.parametrize(
    ('arguments', 'call'),
    [
        (DICTS, Call(**DICTS)),
        ({'spec_obj': SPEC}, Call(SPEC)),
        ({'spec_obj': SPEC, 'instance_uuids': ['a', 'b']}, Call(SPEC, instance_uuids=('a', 'b'))),
        ({'spec_obj': SPEC, 'instance_uuids': None}, Call(SPEC)),
        ({'spec_obj': SPEC, 'instance_uuids': ['a'], 'return_objects': True, 'return_alternates': True},
         Call(SPEC, instance_uuids=('a',), return_objects=True, return_alternates=True)),
        ({'spec_obj': SPEC, 'instance_uuids': ['a'], 'return_objects': True, 'return_alternates': False},
         Call(SPEC, instance_uuids=('a',), return_objects=True)),
        ({'spec_obj': SPEC, 'instance_uuids': ['a'], 'return_objects': False, 'return_alternates': True},
         Call(SPEC, instance_uuids=('a',))),
    ],
    ids=['4.0', '4.3', '4.4', '4.4 without claim', '4.5', '4.5 one host', '4.5 no objects'],
)  # fmt: skip
def test_read(arguments: dict[str, Any], call: Call) -> None:
    """Each version's arguments are one call; alternates come as objects or not at all."""
    assert read(arguments) == call


@pytest.mark.parametrize(
    ('arguments', 'why'),
    [
        ({}, 'without spec_obj, request_spec must be a dict, not NoneType'),
        ({'request_spec': {}}, 'without spec_obj, filter_properties must be a dict, not NoneType'),
        ({'request_spec': [], 'filter_properties': {}}, 'without spec_obj, request_spec must be a dict, not list'),
        ({'spec_obj': None}, 'spec_obj must be a RequestSpec, not NoneType'),
        ({'spec_obj': {'flavor': 1}}, 'spec_obj must be a RequestSpec, not dict'),
        ({'spec_obj': objects.Flavor()}, 'spec_obj must be a RequestSpec, not Flavor'),
        ({'spec_obj': SPEC, 'instance_uuids': 'abc'}, 'instance_uuids is not a list of texts'),
        ({'spec_obj': SPEC, 'instance_uuids': [1]}, 'instance_uuids is not a list of texts'),
        ({'spec_obj': SPEC, 'zeal': 1, 'haste': 2}, 'select_destinations does not take haste, zeal'),
    ],
)  # fmt: skip
def test_read_refuses(arguments: dict[str, Any], why: str) -> None:
    """A call that is none is refused by a text that names the argument."""
    with pytest.raises(BadRequest) as caught:
        read(arguments)
    assert str(caught.value) == why


def test_take() -> None:
    """A cast's arguments come in the order of the table."""
    assert take('delete_instance_info', {'instance_uuid': 'u', 'host_name': 'h'}) == ['h', 'u']


@pytest.mark.parametrize(
    ('arguments', 'why'),
    [
        ({'host_name': 'h'}, 'delete_instance_info lacks instance_uuid'),
        ({'host_name': 'h', 'instance_uuid': 'u', 'x': 1}, 'delete_instance_info does not take x'),
    ],
)
def test_take_refuses(arguments: dict[str, Any], why: str) -> None:
    """A cast with other arguments than the table's is refused."""
    with pytest.raises(BadRequest) as caught:
        take('delete_instance_info', arguments)
    assert str(caught.value) == why


def test_latest() -> None:
    """A client of Queens and later finds the version that it asks for."""
    assert LATEST == '4.5'
