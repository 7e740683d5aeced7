# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl simulate``: where servers would go, how many more fit, and what other options
would make of it.

Hosts and Placement's books are read once. From then on servers are claimed in memory
(``books.py``), and hosts are what these servers leave of them (``landscape.py``); between the
two runs the scheduler itself. Nothing is claimed or written.
"""
