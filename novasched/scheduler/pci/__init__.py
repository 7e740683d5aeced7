# SPDX-License-Identifier: Apache-2.0
"""PCI devices: which of a host's free ones serve a request, and what is left of
them."""
