# SPDX-License-Identifier: Apache-2.0
"""TLS for servers on the loopback: certificates good and bad."""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

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
    """A certificate with its key, and the authority whose certificates its owner
    accepts."""

    authority: Path
    certificate: Path
    key: Path

    def accepting(self):
        context = ssl.create_default_context(
            ssl.Purpose.CLIENT_AUTH, cafile=str(self.authority)
        )
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_cert_chain(self.certificate, self.key)
        return context


@dataclass(frozen=True)
class Certificates:
    """Those of a client, and of servers, by what is wrong with them."""

    client: Identity
    servers: Mapping[str, Identity]

    @classmethod
    def make(cls, directory):
        ours = trustme.CA()
        strange = trustme.CA()
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


def _written(issued, authority, base):
    certificate = base.with_suffix('.pem')
    key = base.with_suffix('.key')
    for number, pem in enumerate(issued.cert_chain_pems):
        pem.write_to_path(certificate, append=number > 0)
    key.touch(0o600)
    issued.private_key_pem.write_to_path(key)
    return Identity(authority, certificate, key)
