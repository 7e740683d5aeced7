# SPDX-License-Identifier: Apache-2.0
"""The page for operators: hosts and decisions in a browser, read-only."""
