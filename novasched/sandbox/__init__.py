# SPDX-License-Identifier: Apache-2.0
"""A whole small cloud in one process, for trying the scheduler and for tests."""

# Before any module that imports oslo.messaging, which settles on eventlet otherwise.
import novasched.processes  # noqa: F401  (for its effect)
