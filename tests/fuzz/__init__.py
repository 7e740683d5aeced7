# SPDX-License-Identifier: Apache-2.0
"""Input that nobody should send, write or configure: a verdict or a clear error, in
bounded time and memory, and nothing else."""
