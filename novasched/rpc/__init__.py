# SPDX-License-Identifier: Apache-2.0
"""RPC requests, notifications, and announcements among schedulers. No decisions."""

import novasched.concurrency  # noqa: F401  (oslo.messaging must find the choice made)
