# SPDX-License-Identifier: Apache-2.0
"""Placement of guest NUMA cells on host NUMA cells.

``parse`` reads the topologies that hosts report, ``fit`` searches for host cells, and
``plain_fit`` finds the hosts that need no search.
"""
