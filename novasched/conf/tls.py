# SPDX-License-Identifier: Apache-2.0
"""Check the TLS files of options before a library opens the files.

Libraries open the files for each connection, and their errors name neither the option
nor reliably the file.
"""

import ssl
from collections.abc import Mapping
from pathlib import Path

from oslo_config import cfg

from novasched.conf.errors import ConfigError


def check_group(conf: cfg.ConfigOpts, group: str, *options: str) -> None:
    """Check the TLS files of a group of nova.conf; see :func:`check_files`."""
    files = {}
    for option in options:
        files[f'[{group}] {option}'] = conf[group][option]
    check_files(files)


def check_files(files: Mapping[str, str | None]) -> None:
    """Check that TLS files can be read and contain certificates and a key.

    :param files: paths by option: authorities, certificate and key, in this order; a
        path may be None.
    :raises ConfigError: a file cannot be used.
    """
    authority_option, certificate_option, key_option = files
    authority, certificate, key = files.values()
    for name, path in files.items():
        try:
            # OpenSSL reads a directory of authorities.
            if path and not (path is authority and Path(path).is_dir()):
                Path(path).read_bytes()
        except OSError as error:
            raise ConfigError(name, path, str(error.strerror)) from None

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if authority and Path(authority).is_file():
        try:
            context.load_verify_locations(authority)
        except ssl.SSLError:
            why = 'no certificate in PEM format'
            raise ConfigError(authority_option, authority, why) from None

    if certificate:
        try:
            # Without a password, OpenSSL would ask at the terminal.
            context.load_cert_chain(certificate, key or None, password='')
        except (ssl.SSLError, ValueError):
            why = f'no certificate in PEM format for the key of {key_option}'
            raise ConfigError(certificate_option, certificate, why) from None
