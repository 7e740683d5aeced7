# SPDX-License-Identifier: Apache-2.0
"""Comes before any test module, so that oslo.service's backend is chosen first."""

import novasched.processes  # noqa: F401  (for its effect)
