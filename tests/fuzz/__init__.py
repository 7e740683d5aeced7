# SPDX-License-Identifier: Apache-2.0
"""Bad input gives a verdict or a clear error, in bounded time and memory."""
