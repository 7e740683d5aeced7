# SPDX-License-Identifier: Apache-2.0
"""HTTP for people and for Prometheus, served by a process of its own, read-only."""
