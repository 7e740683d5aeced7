# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf import loading


@pytest.fixture
def load(tmp_path):
    """The options that a nova.conf of this text gives."""

    def _load(text):
        path = tmp_path / 'nova.conf'
        path.write_text(text)
        return loading.load(['--config-file', str(path)], 'novasched')

    return _load
