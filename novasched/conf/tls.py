# SPDX-License-Identifier: Apache-2.0
"""The files of TLS that options name, looked at before a library needs them.

Libraries open them anew for each connection, and tell neither the option nor always the file.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from oslo_config import cfg

from novasched.conf.errors import ConfigError

AUTHORITY, CERTIFICATE, KEY = 'authority', 'certificate', 'key'


def check_group(conf: cfg.ConfigOpts, group: str, options: Mapping[str, str]) -> None:
    """See that the files which a group of nova.conf names can be used.

    :param options: the names of the options by what their files hold.
    :raises ConfigError: one cannot.
    """
    paths = {what: conf[group][name] for what, name in options.items()}
    check_files(paths, {what: f'[{group}] {name}' for what, name in options.items()})


def check_files(paths: Mapping[str, str | None], names: Mapping[str, str]) -> None:
    """See that files can be read and hold what they should; those that are not named are left.

    :param paths: of the authorities, of our certificate and of its key.
    :param names: what an operator calls them.
    :raises ConfigError: one cannot be used.
    """
    found = {what: path for what, path in paths.items() if path}
    for what, path in found.items():
        try:
            # A directory of authorities is for OpenSSL to read.
            if not (what == AUTHORITY and Path(path).is_dir()):
                Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(names[what], path, str(error.strerror)) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    authority, certificate = found.get(AUTHORITY), found.get(CERTIFICATE)
    if authority and Path(authority).is_file():
        try:
            context.load_verify_locations(authority)
        except ssl.SSLError:
            raise ConfigError(
                names[AUTHORITY], authority, 'it holds no certificate (PEM)'
            ) from None
    if certificate:
        try:
            # The answer to a question that would be put at the terminal.
            context.load_cert_chain(certificate, found.get(KEY), password='')
        except (ssl.SSLError, ValueError):
            why = f'it holds no certificate (PEM), or none for the key of {names[KEY]}'
            raise ConfigError(names[CERTIFICATE], certificate, why) from None
