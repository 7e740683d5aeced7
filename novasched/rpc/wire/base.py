# SPDX-License-Identifier: Apache-2.0
"""Decodes nova's objects.

The primitive of an object is ``{'nova_object.name', '.namespace', '.version', '.data',
'.changes'}``.

The classes are registered by name in this module, not in the registry of
oslo.versionedobjects. In the registry of oslo.versionedobjects, a class replaces a
class of the same name and version. An out-of-tree plugin may import nova's objects, and
must not change how novasched decodes objects.
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
_STORED = '_obj_'
"""The prefix of the attributes in which oslo.versionedobjects keeps values."""

_classes: 'dict[str, type[NovaObject]]' = {}


class BadObject(ValueError):
    """A primitive is malformed.

    The text has the object, the version, the field and the type of the value, but not
    the value, which may be secret.
    """


class NovaObject(base.VersionedObject):
    """A wire object.

    Releases differ in the fields that are missing or null. A missing field stays unset,
    every field may be null, and :meth:`value` returns the default in both cases.
    Undeclared fields are ignored.
    """

    OBJ_SERIAL_NAMESPACE = 'nova_object'
    OBJ_PROJECT_NAMESPACE = 'nova'

    def __init_subclass__(cls) -> None:
        """Register a class by its name, in this module only."""
        base.VersionedObjectRegistry.objectify(cls)
        _classes[cls.obj_name()] = cls

    def value(self, name: str, default: Any = None) -> Any:
        """The value of a field. ``default`` if the field is unset or null."""
        value = getattr(self, _STORED + name, None)
        if value is None:
            return default
        return value

    @classmethod
    def obj_from_primitive(cls, primitive: Any, context: Any = None) -> Any:
        """Decode an object of any class and any minor version. oslo.versionedobjects
        calls this method for nested objects.

        :raises BadObject: the primitive is malformed.
        """
        if not isinstance(primitive, dict):
            raise BadObject(f'expected an object, not {kind(primitive)}')
        name = primitive.get(NAME)
        version = primitive.get(VERSION)
        if not isinstance(name, str) or not isinstance(version, str):
            raise BadObject(f'a dict without {NAME} and {VERSION} is not an object')
        if primitive.get(NAMESPACE) != cls.OBJ_PROJECT_NAMESPACE:
            raise BadObject(
                f'{name} {version} is not in the namespace {cls.OBJ_PROJECT_NAMESPACE}'
            )
        class_of_object = _classes.get(name)
        if class_of_object is None:
            raise BadObject(f'{name} {version} is an unknown object')
        _check_version(name, version, class_of_object.VERSION)

        self = class_of_object()
        self.VERSION = version
        self._fill(primitive.get(DATA))

        # Notifications contain the changed fields.
        self._changed_fields = set()
        changes = primitive.get(CHANGES)
        if isinstance(changes, list):
            self._changed_fields.update(name for name in self.fields if name in changes)
        return self

    @classmethod
    def from_plain(cls, values: Any) -> Any:
        """Build an object from a dict of fields, as in the dicts of RPC version 4.0.

        :raises BadObject: a value has a wrong type.
        """
        self = cls()
        self._fill(values)
        return self

    def _fill(self, data: Any) -> None:
        if not isinstance(data, Mapping):
            name = f'{self.obj_name()} {self.VERSION}'
            raise BadObject(f'{name} must have a dict of fields, not {kind(data)}')
        for name, value in data.items():
            field = self.fields.get(name)
            if field is None:
                continue
            if value is None:
                # Most fields are not nullable, so that setattr() would refuse the null.
                setattr(self, _STORED + name, None)
                continue

            try:
                if isinstance(value, str | dict) and isinstance(field._type, _LISTS):
                    # oslo.versionedobjects would take characters or keys for elements.
                    raise TypeError
                setattr(self, name, field.from_primitive(self, name, value))
            except BadObject as error:
                why = str(error)
            except (ValueError, TypeError, AttributeError, OverflowError):
                why = f'invalid value of type {kind(value)}'
            else:
                continue
            raise BadObject(f'{self.obj_name()} {self.VERSION}, {name}: {why}')


decode: Callable[[Any], NovaObject] = NovaObject.obj_from_primitive


def loads(text: str) -> NovaObject:
    """Decode the JSON of an object. Database columns and old messages contain JSON.

    :raises BadObject: the text is not JSON, or not an object.
    """
    try:
        primitive = json.loads(text)
    except (ValueError, RecursionError):
        raise BadObject('expected an object, not invalid JSON') from None
    return decode(primitive)


# The cache lets a newer version be logged once. Its size bounds the memory for versions
# that a caller invents.
@lru_cache(maxsize=1000)
def _check_version(name: str, version: str, known: str) -> None:
    """Check the version of an object, and log a newer version when it first arrives.

    :param known: the version of the class in this package.
    :raises BadObject: the version is malformed, or has another major version.
    """
    try:
        major, minor, *_ = map(int, version.split('.'))
    except ValueError:
        raise BadObject(
            f'{name} has the malformed version {reprlib.repr(version)}'
        ) from None

    known_major, known_minor, *_ = map(int, known.split('.'))
    if major != known_major:
        raise BadObject(
            f'{name} {version} is not supported, only {known_major}.x (up to {known})'
        )
    if minor > known_minor:
        LOG.warning(
            '%s %s is newer than the supported version %s; new fields are ignored',
            name,
            version,
            known,
        )


def kind(value: object) -> str:
    """The type of a value, for texts of errors."""
    if value is None:
        return 'null'
    return type(value).__name__
