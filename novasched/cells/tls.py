# SPDX-License-Identifier: Apache-2.0
"""TLS as the URLs of databases ask for it: ``?ssl_ca=...&ssl_cert=...&ssl_key=...``."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

import sqlalchemy as sa

from novasched import tls
from novasched.errors import ConfigError

FILES = {tls.AUTHORITY: 'ssl_ca', tls.CERTIFICATE: 'ssl_cert', tls.KEY: 'ssl_key'}
VERIFY_CERT, VERIFY_IDENTITY = 'ssl_verify_cert', 'ssl_verify_identity'
HOSTNAME = 'ssl_check_hostname'
OF_SQLALCHEMY = ('ssl_capath', 'ssl_cipher', HOSTNAME)
DRIVERS = ('pymysql', 'mysqldb')
OFF = ('0', 'false', 'no', 'none', '')


def checked(url: str, name: str) -> str:
    """The URL as it can be used.

    :param name: what an operator calls the URL.
    :raises ConfigError: a file that it names cannot be used, or the driver does not know a
        parameter.
    :raises ArgumentError: it is no URL.
    """
    parsed = sa.engine.make_url(url)
    driver = parsed.get_driver_name()
    if driver not in DRIVERS:
        return url
    query = {key: value for key, value in parsed.query.items() if isinstance(value, str)}
    if 'ssl_key_password' not in query:
        paths = {what: query.get(key) for what, key in FILES.items()}
        tls.check_files(paths, {what: f'{key} of {name}' for what, key in FILES.items()})
    if driver == 'pymysql':
        known = inspect.signature(parsed.get_dialect().import_dbapi().Connection).parameters
        for key in query:
            if key.startswith('ssl_') and key not in (*known, *OF_SQLALCHEMY):
                raise ConfigError(name, '(not shown)', f'there is no parameter {key}')
        if changes := _translated(query):
            parsed = parsed.difference_update_query([VERIFY_CERT, VERIFY_IDENTITY])
            return parsed.update_query_dict(changes).render_as_string(hide_password=False)
    return url


def _translated(query: Mapping[str, str]) -> dict[str, str]:
    """What says the same as ``ssl_verify_cert`` and ``ssl_verify_identity``, if they are there
    beside ``ssl_ca``.

    SQLAlchemy hands ``ssl_ca``, ``ssl_cert`` and ``ssl_key`` over in a form that PyMySQL drops
    when it is also told to verify: it then knows another authority, or none. ``ssl_ca`` alone
    has it verify the certificate and the name.
    """
    if 'ssl_ca' not in query or not query.keys() & {VERIFY_CERT, VERIFY_IDENTITY}:
        return {}
    if query.get(VERIFY_IDENTITY, '').lower() not in OFF:
        return {HOSTNAME: 'true'}
    if query.get(VERIFY_CERT, 'true').lower() not in OFF:
        return {HOSTNAME: query.get(HOSTNAME, 'false')}
    return {}
