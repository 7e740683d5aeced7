# SPDX-License-Identifier: Apache-2.0
"""Filters, weighers and drivers by entry point or import path, including plugins that
were written for nova."""
