# SPDX-License-Identifier: Apache-2.0
"""Keeps decision records: in memory, and in a file for ``novaschedctl explain``."""
