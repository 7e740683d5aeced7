# SPDX-License-Identifier: Apache-2.0
"""The executables. They run with threads, which has to be said before anything that
uses oslo.service is imported (oslo.messaging does)."""

import novasched.concurrency  # noqa: F401  (for its effect)
