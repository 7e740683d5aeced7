# SPDX-License-Identifier: Apache-2.0
"""Fixtures of all unit tests."""

import pytest

from novasched.conf import loading, redaction


@pytest.fixture(autouse=True)
def known(monkeypatch):
    """Forget the secrets of earlier tests."""
    monkeypatch.setattr(redaction.KNOWN, '__dict__', vars(redaction.Secrets()))


@pytest.fixture
def load(tmp_path):
    """A function from the text of a nova.conf to its options."""

    def _load(text):
        path = tmp_path / 'nova.conf'
        path.write_text(text)
        return loading.load(['--config-file', str(path)], 'novasched')

    return _load
