# SPDX-License-Identifier: Apache-2.0
"""How many inputs are tried.

Without ``NOVASCHED_FUZZ_SECONDS`` they are few and the same each time, so that a test fails for
what was changed and not for what was drawn. With it each property is tried with ever new inputs
for its share of these seconds.
"""

from __future__ import annotations

import os

from hypothesis import HealthCheck, Phase, settings

SECONDS = float(os.environ.get('NOVASCHED_FUZZ_SECONDS') or 0)
EFFORT = settings(
    max_examples=200 if SECONDS else 25,
    derandomize=not SECONDS,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)
"""Of one property, once; more than once with these seconds."""
