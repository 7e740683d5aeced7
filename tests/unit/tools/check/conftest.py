# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.tools.check import nova_conf
from tests.unit.own_process import a_process_of_its_own  # noqa: F401  (a fixture of all tests here)


@pytest.fixture
def load(tmp_path):
    """The options in a nova.conf of a text, and what is written there."""

    def _load(text):
        path = tmp_path / 'nova.conf'
        path.write_text(text)
        return nova_conf.load([str(path)], [])

    return _load
