# SPDX-License-Identifier: Apache-2.0
"""Tests of the page in a browser, over a cloud in memory."""
