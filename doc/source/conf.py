# SPDX-License-Identifier: Apache-2.0
"""Sphinx configuration."""

project = 'novasched'
author = 'novasched maintainers'
extensions = ['oslo_config.sphinxext']
html_theme = 'alabaster'
