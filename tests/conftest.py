# SPDX-License-Identifier: Apache-2.0
"""Comes before any test module, so that oslo.service's backend is chosen first."""

import hypothesis
import pytest

import novasched.concurrency  # noqa: F401  (for its effect)
from novasched.scheduler import plugin

plugin.CHECK_SCOPES = True
# Random tests take as long as they take: a busy machine is no failure.
hypothesis.settings.register_profile(
    'patient', deadline=None, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile('patient')


@pytest.fixture
def unchecked_scopes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins are asked no more often than in production."""
    monkeypatch.setattr(plugin, 'CHECK_SCOPES', False)
