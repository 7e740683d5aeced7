# SPDX-License-Identifier: Apache-2.0
"""Stubs of the modules that a plugin imports from ``nova`` where nova is not installed.

The finder stands last in the import system's line, so that it is asked only for what
nobody else has: a real nova, whole or in part, always goes first.
"""

from __future__ import annotations

import contextlib
import importlib
import sys
from collections.abc import Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from types import ModuleType
from typing import Any

from oslo_config import cfg

from novasched.conf import loading
from novasched.plugins.nova_compat.bases import MODULES

ROOT = 'nova'
PRELOADED_MODULES = ('nova.conf', 'nova.scheduler.utils')
"""Modules of a real nova that declare its options, and that its filters would import, for
seconds, when they judge their first host."""


class StubModule(ModuleType):
    def __getattr__(self, name: str) -> Any:
        if name.startswith('__'):
            raise AttributeError(name)
        raise AttributeError(f'{self.__name__}.{name} is not there unless nova is installed')


class StubFinder(MetaPathFinder, Loader):
    """Finds and loads the modules of the table."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """See :class:`importlib.abc.MetaPathFinder`; None where a real nova lacks a module."""
        if fullname not in MODULES or (fullname != ROOT and nova_is_installed()):
            return None
        return ModuleSpec(fullname, self, is_package=True)

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        return StubModule(spec.name)

    def exec_module(self, module: ModuleType) -> None:
        vars(module).update(MODULES[module.__name__])


def install() -> None:
    """Let ``import nova`` succeed in this process from now on."""
    if not any(isinstance(each, StubFinder) for each in sys.meta_path):
        sys.meta_path.append(StubFinder())


def nova_is_installed() -> bool:
    """True where there is a real nova to import."""
    spec = find_spec(ROOT)
    return spec is not None and not isinstance(spec.loader, StubFinder)


def share_options(conf: cfg.ConfigOpts) -> None:
    """Let oslo.config's global CONF, which plugins read, have the files that ``conf`` has read.

    It knows nova's options too, as in a nova service: by a real nova, if there is one, or
    else those declared here. They have to be there first, since some are for the command
    line, and those cannot be added later.
    """
    install()
    cfg.CONF.clear()
    if nova_is_installed():
        for module in PRELOADED_MODULES:
            with contextlib.suppress(ImportError):  # then the plugin cannot import it either
                importlib.import_module(module)
    else:
        loading.register(cfg.CONF)
    cfg.CONF(
        [],
        project=loading.PROJECT,
        default_config_files=conf.config_file or [],
        default_config_dirs=conf.config_dir or [],
    )
