# SPDX-License-Identifier: Apache-2.0
"""The page for people: hosts and decisions, to be read in a browser.

What is shown is made of values by pure functions (``heat.py``, ``machine.py``, ``told.py``);
``watch.py`` reads the hosts and ``app.py`` answers requests. Nothing can be changed here.
"""
