# SPDX-License-Identifier: Apache-2.0
"""Themes of random cases. A theme is a function that adds a subject to a case: to its
hosts, its request and the configuration."""
