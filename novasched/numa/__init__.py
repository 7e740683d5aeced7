# SPDX-License-Identifier: Apache-2.0
"""Guests on the NUMA cells of hosts: whether they fit, where they go, what is left then.

parse.host_topology(text) -> HostTopology       what a compute host reports
fit.fit(host, guest, limits, ...) -> Fit | str  where the guest goes, or why it does not
usage.consume(host, fit, guest) -> HostTopology the host with the guest on it
usage.release(host, fit, guest) -> HostTopology and without it again
"""
