# SPDX-License-Identifier: Apache-2.0
"""What holds before each unit test."""

import pytest

from novasched.conf import loading, redaction


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """No secret is known, whatever the tests before have told the process."""
    monkeypatch.setattr(redaction.KNOWN, '__dict__', vars(redaction.Secrets()))


@pytest.fixture
def load(tmp_path):
    """Gives the options of a nova.conf of this text."""

    def _load(text):
        path = tmp_path / 'nova.conf'
        path.write_text(text)
        return loading.load(['--config-file', str(path)], 'novasched')

    return _load
