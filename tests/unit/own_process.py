# SPDX-License-Identifier: Apache-2.0
"""Isolation of tests that load plugins, since a process keeps loaded plugins."""

import sys

import pytest
from oslo_config import cfg
from stevedore import ExtensionManager

import novasched.concurrency  # noqa: F401  (oslo.messaging must find the choice made)
from novasched.plugins.nova_compat.import_stubs import StubFinder, StubModule

STYLE = 'tests.unit.plugins.nova_style'


@pytest.fixture(autouse=True)
def a_process_of_its_own(monkeypatch):
    """Undo the traces of loaded plugins in the process after each test."""
    monkeypatch.setattr(ExtensionManager, 'ENTRY_POINT_CACHE', {})
    before = list(sys.meta_path)
    yield
    sys.meta_path[:] = before
    for name, module in [*sys.modules.items()]:
        if isinstance(module, StubModule) or name.startswith((STYLE, 'acme_')):
            del sys.modules[name]
    cfg.CONF.clear()
    assert not any(isinstance(each, StubFinder) for each in sys.meta_path)
