# SPDX-License-Identifier: Apache-2.0
"""An hour's worth of requests in minutes, over a simulated cloud that never stands
still."""

import novasched.concurrency  # noqa: F401  (oslo.messaging must find the choice made)
