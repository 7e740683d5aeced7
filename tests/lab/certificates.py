# SPDX-License-Identifier: Apache-2.0
"""TLS for servers on the loopback: certificates good and bad."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import trustme

ADDRESS = '127.0.0.1'
RIGHT = 'right'
WRONG = {
    'another name': 'IP address mismatch',
    'expired': 'certificate has expired',
    'unknown authority': 'unable to get local issuer certificate',
}
"""Faults of certificates, with the message of OpenSSL or Python."""


@dataclass(frozen=True)
class Identity:
    """A certificate, a key, and the authority whose certificates the owner accepts."""

    authority: Path
    certificate: Path
    key: Path

    def accepting(self):
        """The SSL context of a server with this identity."""
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority)
        )
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.certificate, self.key)
        return context


@dataclass(frozen=True)
class Certificates:
    """The certificate of a client, and the certificates of servers by their faults."""

    client: Identity
    servers: Mapping[str, Identity]

    @classmethod
    def make(cls, directory):
        ours = trustme.CA()
        strange = trustme.CA()
        past = datetime(2020, 1, 1, tzinfo=UTC)
        issued = {
            RIGHT: ours.issue_cert(ADDRESS),
            'another name': ours.issue_cert('elsewhere.example'),
            'expired': ours.issue_cert(ADDRESS, not_after=past),
            'unknown authority': strange.issue_cert(ADDRESS),
            'client': ours.issue_cert('novasched.example'),
        }
        authority = directory / 'authority.pem'
        ours.cert_pem.write_to_path(authority)

        identities = {}
        for name, certificate in issued.items():
            base = directory / name.replace(' ', '-')
            identities[name] = _written(certificate, authority, base)
        return cls(identities.pop('client'), identities)


def _written(issued, authority, base):
    certificate = base.with_suffix('.pem')
    key = base.with_suffix('.key')
    for number, pem in enumerate(issued.cert_chain_pems):
        pem.write_to_path(certificate, append=number > 0)
    key.touch(0o600)
    issued.private_key_pem.write_to_path(key)
    return Identity(authority, certificate, key)
