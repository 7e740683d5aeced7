# SPDX-License-Identifier: Apache-2.0
"""TLS for servers on the loopback: certificates good and bad, and a port that ends TLS."""

from __future__ import annotations

import asyncio
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from urllib.parse import urlsplit

import trustme

ADDRESS = '127.0.0.1'
RIGHT = 'right'
WRONG = {
    'another name': 'IP address mismatch',
    'expired': 'certificate has expired',
    'unknown authority': 'unable to get local issuer certificate',
}
"""What is wrong with a certificate, and how OpenSSL and Python tell it."""


@dataclass(frozen=True)
class Identity:
    """A certificate with its key, and the authority whose certificates its owner accepts."""

    authority: Path
    certificate: Path
    key: Path

    def accepting(self) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority))
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.certificate, self.key)
        return context


@dataclass(frozen=True)
class Certificates:
    """Those of a client, and of servers, by what is wrong with them."""

    client: Identity
    servers: Mapping[str, Identity]

    @classmethod
    def make(cls, directory: Path) -> Certificates:
        ours, strange = trustme.CA(), trustme.CA()
        past = datetime(2020, 1, 1, tzinfo=timezone.utc)
        issued = {
            RIGHT: ours.issue_cert(ADDRESS),
            'another name': ours.issue_cert('elsewhere.example'),
            'expired': ours.issue_cert(ADDRESS, not_after=past),
            'unknown authority': strange.issue_cert(ADDRESS),
            'client': ours.issue_cert('novasched.example'),
        }
        authority = directory / 'authority.pem'
        ours.cert_pem.write_to_path(authority)
        made = {
            name: _written(each, authority, directory / name.replace(' ', '-'))
            for name, each in issued.items()
        }
        return cls(made.pop('client'), made)


def _written(issued: trustme.LeafCert, authority: Path, base: Path) -> Identity:
    certificate, key = base.with_suffix('.pem'), base.with_suffix('.key')
    for number, pem in enumerate(issued.cert_chain_pems):
        pem.write_to_path(certificate, append=number > 0)
    key.touch(0o600)
    issued.private_key_pem.write_to_path(key)
    return Identity(authority, certificate, key)


class Front:
    """A port where TLS ends, before a server that speaks none: as a load balancer does it."""

    def __init__(self, identity: Identity, url: str) -> None:
        at = urlsplit(url)
        self._inside = (at.hostname, at.port)
        self._loop = asyncio.new_event_loop()
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._forward, ADDRESS, 0, ssl=identity.accepting())
        )
        port = self._server.sockets[0].getsockname()[1]
        self.url = f'https://{ADDRESS}:{port}'
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop listening, and cut the connections off."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._server.close()
        for task in asyncio.all_tasks(self._loop):
            task.cancel()
        self._loop.run_until_complete(asyncio.sleep(0))
        self._loop.close()

    async def _forward(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inside = await asyncio.open_connection(*self._inside)
        await asyncio.gather(_pump(reader, inside[1]), _pump(inside[0], writer))


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while data := await reader.read(2**16):
            writer.write(data)
            await writer.drain()
    except OSError:
        pass  # one of both sides is gone
    finally:
        writer.close()
