# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from tests.unit.own_process import a_process_of_its_own  # noqa: F401  (a fixture of all tests here)

EXAMPLES = Path(__file__).parents[3] / 'doc' / 'source' / 'examples'


@pytest.fixture(autouse=True)
def examples(monkeypatch):
    """The documentation's examples can be imported."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
