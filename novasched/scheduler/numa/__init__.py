# SPDX-License-Identifier: Apache-2.0
"""Guests on the NUMA cells of hosts: ``parse`` reads what hosts report, ``fit`` finds
cells, and ``plain_fit`` the hosts that need no search."""
