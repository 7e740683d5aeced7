# SPDX-License-Identifier: Apache-2.0
"""PCI devices of a host: devices that serve a request, and devices that remain."""
