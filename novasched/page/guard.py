# SPDX-License-Identifier: Apache-2.0
"""Whom the page is shown to, unless it is shown to everybody: this machine alone."""

from __future__ import annotations

from ipaddress import IPv6Address, ip_address
from urllib.parse import urlsplit


def is_local(peer: str, host: str) -> bool:
    """Whether somebody here asks, for a name that is this machine's. Else a site out there
    could have its own name mean this machine, and a browser here read the page for it.

    :param peer: the address that the request comes from.
    :param host: the Host header, empty where there is none.
    """
    return is_loopback(peer) and (not host or _named(host))


def is_loopback(text: str) -> bool:
    """Whether an address is the machine's own for itself."""
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address) and address.ipv4_mapped:
        return address.ipv4_mapped.is_loopback
    return address.is_loopback


def _named(host: str) -> bool:
    try:
        name = urlsplit(f'//{host}').hostname or ''
    except ValueError:
        return False
    return name == 'localhost' or is_loopback(name)
