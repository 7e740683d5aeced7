# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers by entry point or import path, those written for nova among
them."""
