# SPDX-License-Identifier: Apache-2.0
"""The options that novasched and its libraries read, by group and name."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import stevedore
from keystoneauth1 import exceptions as ks_exc
from keystoneauth1 import loading
from oslo_config import cfg
from oslo_db import options as db_options

from novasched import conf as configuration
from novasched.conf.written import Written

NAMESPACE = 'oslo.config.opts'
LIBRARIES = ('oslo.messaging', 'oslo.log', 'oslo.service.service')
"""The entry points of libraries that read nova.conf in the daemon."""

Known = Mapping[str, Mapping[str, cfg.Opt]]


def options(written: Written) -> Known:
    """Every option; which ones keystoneauth1 has depends on the ``auth_type`` chosen."""
    known: dict[str, dict[str, cfg.Opt]] = {}

    def add(group: Any, several: Iterable[cfg.Opt]) -> None:
        name = getattr(group, 'name', group) or 'DEFAULT'
        known.setdefault(name, {}).update({option.dest: option for option in several})

    for group, several in (*configuration.list_opts(), *_of_libraries()):
        add(group, several)
    for group in ('database', 'api_database'):
        add(group, db_options.database_opts)
    for group in ('placement', 'neutron'):
        add(group, _of_keystone(written.get(group, {}).get('auth_type', ())))
    return known


def _of_libraries() -> Iterator[tuple[Any, list[cfg.Opt]]]:
    manager: stevedore.NamedExtensionManager[Any] = stevedore.NamedExtensionManager(
        NAMESPACE, list(LIBRARIES), invoke_on_load=True
    )
    for extension in manager:
        yield from extension.obj or ()


def _of_keystone(auth_types: Sequence[str]) -> Iterator[cfg.Opt]:
    for name in ('password', *auth_types):
        # A name that is wrong is told where Placement is asked.
        with suppress(ks_exc.NoMatchingPlugin):
            yield from loading.get_auth_plugin_conf_options(name)
    yield from loading.get_auth_common_conf_options()
    yield from loading.get_session_conf_options()
    yield from loading.get_adapter_conf_options()
