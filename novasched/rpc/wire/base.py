# SPDX-License-Identifier: Apache-2.0
"""nova's envelope around its objects, read leniently.

An object travels as ``{'nova_object.name', '.namespace', '.version', '.data',
'.changes'}``. The classes here are known by name in a registry of their own and not in
the one that oslo.versionedobjects keeps for the whole process, where a class of the
same name and version replaces the one before it: an out-of-tree plugin may import
nova's objects next to these, and neither side changes what the other decodes.
"""

import json
import logging
import reprlib
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

from oslo_versionedobjects import base, fields

LOG = logging.getLogger(__name__)

NAME = 'nova_object.name'
NAMESPACE = 'nova_object.namespace'
VERSION = 'nova_object.version'
DATA = 'nova_object.data'
CHANGES = 'nova_object.changes'

_LISTS = (fields.List, fields.Set)
_STORED = '_obj_'  # oslo.versionedobjects' prefix of the attributes that hold values

_classes: 'dict[str, type[NovaObject]]' = {}


class BadObject(ValueError):
    """A primitive cannot be read. The text names the object, its version and the field,
    and says of the value no more than its type."""


class NovaObject(base.VersionedObject):
    """A wire object.

    Fields that are missing stay unset, and any field may be null: releases differ in
    both, and :meth:`value` gives the default for either. Fields that are not declared
    are ignored, be they of a newer minor version or of no use here.
    """

    OBJ_SERIAL_NAMESPACE = 'nova_object'
    OBJ_PROJECT_NAMESPACE = 'nova'

    def __init_subclass__(cls) -> None:
        """Make a class known by its name, here and nowhere else."""
        base.VersionedObjectRegistry.objectify(cls)
        _classes[cls.obj_name()] = cls

    def value(self, name: str, default: Any = None) -> Any:
        """The field's value; ``default`` where it is unset or null."""
        value = getattr(self, _STORED + name, None)
        if value is None:
            return default
        return value

    @classmethod
    def obj_from_primitive(cls, primitive: Any, context: Any = None) -> Any:
        """Any object from its primitive, in any minor version of its major; nested
        objects come through here as well.

        :raises BadObject: it cannot be read
        """
        if not isinstance(primitive, dict):
            raise BadObject(f'an object is wanted, not {kind(primitive)}')
        name = primitive.get(NAME)
        version = primitive.get(VERSION)
        if not isinstance(name, str) or not isinstance(version, str):
            raise BadObject(f'a dict without {NAME} and {VERSION} is no object')
        if primitive.get(NAMESPACE) != cls.OBJ_PROJECT_NAMESPACE:
            raise BadObject(
                f'{name} {version} is not in the namespace {cls.OBJ_PROJECT_NAMESPACE}'
            )
        kind_of_object = _classes.get(name)
        if kind_of_object is None:
            raise BadObject(f'{name} {version} is no object that is known here')
        _check_version(name, version, kind_of_object.VERSION)
        self = kind_of_object()
        self.VERSION = version
        self._fill(primitive.get(DATA))
        changes = primitive.get(CHANGES)
        changed = changes if isinstance(changes, list) else ()
        self._changed_fields = {name for name in self.fields if name in changed}
        return self

    @classmethod
    def from_plain(cls, values: Any) -> Any:
        """An object from a dict of its fields without envelope, as it stood in the
        dicts of older releases.

        :raises BadObject: a value does not fit
        """
        self = cls()
        self._fill(values)
        return self

    def _fill(self, data: Any) -> None:
        if not isinstance(data, Mapping):
            raise BadObject(
                f'{self.obj_name()} {self.VERSION} has no fields but {kind(data)}'
            )
        for name, value in data.items():
            field = self.fields.get(name)
            if field is None:
                continue
            if value is None:
                setattr(self, _STORED + name, None)
                continue
            try:
                if isinstance(value, str | dict) and isinstance(field._type, _LISTS):
                    # or its characters or keys would be taken for the elements
                    raise TypeError
                setattr(self, name, field.from_primitive(self, name, value))
            except BadObject as error:
                why = str(error)
            except (ValueError, TypeError, AttributeError, OverflowError):
                why = f'{kind(value)} does not fit'
            else:
                continue
            raise BadObject(f'{self.obj_name()} {self.VERSION}, {name}: {why}')


decode: Callable[[Any], NovaObject] = NovaObject.obj_from_primitive


def loads(text: str) -> NovaObject:
    """The object in a JSON text, as database columns and old messages hold it.

    :raises BadObject: the text is no JSON or no object
    """
    try:
        primitive = json.loads(text)
    except ValueError:
        raise BadObject('an object is wanted, not a text that is no JSON') from None
    return decode(primitive)


@lru_cache(
    maxsize=1000
)  # far more than there are, were it not for what callers make up
def _check_version(name: str, version: str, known: str) -> None:
    """Check a version when it is seen for the first time; warn if it is a newer one."""
    try:
        major, minor, *_ = map(int, version.split('.'))
    except ValueError:
        raise BadObject(f'{name} has {reprlib.repr(version)} for a version') from None
    known_major, known_minor = (int(part) for part in known.split('.')[:2])
    if major != known_major:
        raise BadObject(
            f'{name} {version} cannot be read, only {known_major}.x (up to {known})'
        )
    if minor > known_minor:
        LOG.warning(
            '%s %s is newer than %s, the version known here; what it adds is ignored',
            name,
            version,
            known,
        )


def kind(value: object) -> str:
    """The type of a value, as a refusal names it."""
    if value is None:
        return 'null'
    return type(value).__name__
