# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration."""

project = 'novasched'
author = 'novasched maintainers'
extensions = []
html_theme = 'alabaster'
