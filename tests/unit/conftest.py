# SPDX-License-Identifier: Apache-2.0
"""What holds before each unit test."""

import pytest

from novasched.conf import redaction


@pytest.fixture(autouse=True)
def known(monkeypatch: pytest.MonkeyPatch) -> None:
    """No secret is known, whatever the tests before have told the process."""
    monkeypatch.setattr(redaction.KNOWN, '__dict__', vars(redaction.Secrets()))
