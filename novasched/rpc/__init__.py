# SPDX-License-Identifier: Apache-2.0
"""The message queue: what comes in, what goes out, and nothing of what is decided."""

import novasched.concurrency  # noqa: F401  (oslo.messaging must find the choice made)
