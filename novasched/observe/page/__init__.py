# SPDX-License-Identifier: Apache-2.0
"""The page for operators: hosts and decisions in a browser, read-only.

The templates show hosts by ``hosts.py`` and ``heatmap.py``, and records by ``records/render.py``;
``watch.py`` reads the hosts and ``app.py`` answers requests.
"""
