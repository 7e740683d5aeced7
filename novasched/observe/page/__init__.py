# SPDX-License-Identifier: Apache-2.0
"""The page for operators: hosts and decisions in a browser, read-only.

Pure functions make views of values (``heatmap.py``, ``hosts.py``, ``decision_view.py``);
``watch.py`` reads the hosts and ``app.py`` answers requests.
"""
