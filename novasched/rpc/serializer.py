# SPDX-License-Identifier: Apache-2.0
"""Between the values that oslo.messaging carries and those that the endpoints handle."""

import re
from collections.abc import Mapping
from typing import Any

import oslo_messaging
from oslo_context.context import RequestContext

from novasched.rpc import wire
from novasched.rpc.wire.base import NAME
from novasched.scheduler.errors import BadRequest

MAX_DEPTH = 100
"""Services send a tenth of it."""
HALF_CHARACTER = re.compile('[\ud800-\udfff]')


class Serializer(oslo_messaging.Serializer):  # type: ignore[misc]
    """Encodes and decodes objects and contexts; all else travels as it is."""

    def deserialize_entity(self, ctxt: RequestContext, entity: Any) -> Any:
        """An argument with every object primitive in it decoded.

        :raises BadRequest: an object in it cannot be decoded.
        """
        _check(entity)
        try:
            return _decoded(entity)
        except wire.BadObject as error:
            raise BadRequest(str(error)) from None

    def serialize_entity(self, ctxt: RequestContext, entity: Any) -> Any:
        """A result with every object in it as its primitive."""
        if isinstance(entity, wire.NovaObject):
            return entity.obj_to_primitive()
        if isinstance(entity, list | tuple):
            return [self.serialize_entity(ctxt, item) for item in entity]
        if isinstance(entity, dict):
            return {key: self.serialize_entity(ctxt, item) for key, item in entity.items()}
        return entity

    def deserialize_context(self, ctxt: Mapping[str, Any]) -> RequestContext:
        """The context of a request, also made the one that this thread logs with.

        Keys of any release are accepted: releases before Queens say ``tenant`` for the
        project. The user's token is left out: this service calls others in its own name.
        """
        context = RequestContext.from_dict(
            dict(ctxt),
            auth_token=None,
            user_id=ctxt.get('user_id') or ctxt.get('user'),
            project_id=ctxt.get('project_id') or ctxt.get('tenant'),
        )
        if trace := ctxt.get('traceparent'):
            context.traceparent = trace  # type: ignore[attr-defined]  # no field of theirs
        return context

    def serialize_context(self, ctxt: RequestContext) -> dict[str, Any]:
        """The context as a dict, for messages that this service sends."""
        return ctxt.to_dict()


def _check(entity: Any) -> None:
    """Check that an argument can be walked through, and encoded again.

    :raises BadRequest: it is nested too deeply, or has half a character, as only JSON can.
    """
    level = [entity]
    for _ in range(MAX_DEPTH):
        below: list[Any] = []
        for item in level:
            if isinstance(item, dict):
                below += item.keys()
                below += item.values()
            elif isinstance(item, list | tuple):
                below += item
            elif isinstance(item, str) and not item.isascii() and HALF_CHARACTER.search(item):
                raise BadRequest('a text with half a character in it (a lone surrogate)')
        if not below:
            return
        level = below
    raise BadRequest(f'more than {MAX_DEPTH} lists and dicts in each other')


def _decoded(entity: Any) -> Any:
    if isinstance(entity, dict):
        if NAME in entity:
            return wire.decode(entity)
        return {key: _decoded(value) for key, value in entity.items()}
    if isinstance(entity, list | tuple):
        return [_decoded(item) for item in entity]
    return entity
