# SPDX-License-Identifier: Apache-2.0
import sys
from pathlib import Path

import pytest
from oslo_config import cfg

import novasched.concurrency  # noqa: F401  (oslo.messaging must find the choice made)
from novasched.plugins.nova_compat.import_stubs import StubModule

EXAMPLES = Path(__file__).parents[3] / 'doc' / 'source' / 'examples'


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    """The documentation's examples can be imported; what they leave behind is taken away."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    before = list(sys.meta_path)
    yield
    sys.meta_path[:] = before
    for name, module in [*sys.modules.items()]:
        if isinstance(module, StubModule) or name.startswith('acme_'):
            del sys.modules[name]
    cfg.CONF.clear()
