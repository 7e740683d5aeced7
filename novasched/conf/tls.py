# SPDX-License-Identifier: Apache-2.0
"""The files of TLS that options name, looked at before a library needs them.

Libraries open them anew for each connection, and tell neither the option nor always the
file.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path

from oslo_config import cfg

from novasched.conf.errors import ConfigError


def check_group(conf: cfg.ConfigOpts, group: str, *options: str) -> None:
    """Check the files that options of a group of nova.conf name: see
    :func:`check_files`."""
    check_files({f'[{group}] {option}': conf[group][option] for option in options})


def check_files(files: Mapping[str, str | None]) -> None:
    """See that files can be read and hold what they should; those that are not named
    are left.

    :param files: by what an operator calls them, the paths of the authorities, of our
        certificate and of its key, in this order.
    :raises ConfigError: one cannot be used.
    """
    names = [*files]
    authority, certificate, key = files.values()
    for name, path in files.items():
        try:
            # A directory of authorities is for OpenSSL to read.
            if path and not (path is authority and Path(path).is_dir()):
                Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(name, path, str(error.strerror)) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority and Path(authority).is_file():
        try:
            context.load_verify_locations(authority)
        except ssl.SSLError:
            why = 'it holds no certificate (PEM)'
            raise ConfigError(names[0], authority, why) from None
    if certificate:
        try:
            # The answer to a question that would be put at the terminal.
            context.load_cert_chain(certificate, key or None, password='')
        except (ssl.SSLError, ValueError):
            why = f'it holds no certificate (PEM), or none for the key of {names[2]}'
            raise ConfigError(names[1], certificate, why) from None
