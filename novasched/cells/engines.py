# SPDX-License-Identifier: Apache-2.0
"""Connections to the databases, with the options of oslo.db."""

import inspect
import itertools
import logging
import math
import string
import time
from collections.abc import Mapping
from urllib.parse import urlsplit

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db.sqlalchemy import engines
from oslo_utils import netutils
from sqlalchemy import exc as sa_exc

from novasched.cells.connections import LIBPQ_DRIVERS
from novasched.cells.database import DATABASE_ERRORS, Database, reason
from novasched.conf import tls
from novasched.conf.errors import ConfigError
from novasched.conf.redaction import learn
from novasched.scheduler.errors import DatabaseUnavailable

MYSQL_DRIVERS = ('pymysql', 'mysqldb')
MAX_CONNECT_TIMEOUT_S = 10
FILES = ('ssl_ca', 'ssl_cert', 'ssl_key')
"""Parameters of URLs that name TLS files."""
VERIFY_CERT = 'ssl_verify_cert'
VERIFY_IDENTITY = 'ssl_verify_identity'
HOSTNAME = 'ssl_check_hostname'
OF_SQLALCHEMY = ('ssl_capath', 'ssl_cipher', HOSTNAME)
"""TLS parameters that SQLAlchemy understands beside the parameters of the driver."""
OFF = ('0', 'false', 'no', 'none', '')
"""Values of ``ssl_verify_cert`` and ``ssl_verify_identity`` that switch it off."""
ENGINE_OPTIONS = (
    'connection_recycle_time',
    'max_retries',
    'retry_interval',
    'connection_debug',
    'mysql_sql_mode',
)
POOL_OPTIONS = ('max_pool_size', 'max_overflow', 'pool_timeout')
"""SQLite has no pool."""
LOG = logging.getLogger('nova.objects.cell_mapping')


def connect(
    group: cfg.ConfigOpts.GroupAttr,
    url: str,
    name: str,
    wait: bool = False,
    patience: float = math.inf,
) -> Database:
    """Open a database with the pool and retry options of ``[database]`` or
    ``[api_database]``.

    :param name: name of the database in errors and logs. The URL is never shown: URLs
        hold passwords.
    :param wait: try to reach the database, ``max_retries`` times every
        ``retry_interval`` seconds.
    :param patience: longest wait of an operation for an answer, in seconds.
    :raises ConfigError: the URL is unusable.
    :raises DatabaseUnavailable: the database cannot be reached.
    """
    # From now on, redaction hides the password of the URL in logs and errors.
    learn([url])
    options = {name: group[name] for name in ENGINE_OPTIONS}
    if not url.startswith('sqlite'):
        options |= {name: group[name] for name in POOL_OPTIONS}
    # oslo.db does not recognise errors of PostgreSQL; see _wait_for_postgresql().
    if not wait or url.startswith('postgresql'):
        options['max_retries'] = 0

    try:
        if group.connection_parameters:
            extended = sa.engine.make_url(url).update_query_string(
                group.connection_parameters, append=True
            )
            url = extended.render_as_string(hide_password=False)
        url = _with_timeouts(checked(url, name), patience)
        engine = engines.create_engine(url, **options)
        if wait and url.startswith('postgresql'):
            _wait_for_postgresql(engine, group, name)
        return Database(engine, name, patience)
    except ImportError as error:
        why = f'unusable: install {error.name}'
        if str(error.name).startswith('psycopg'):
            why += ' (pip install novasched[postgresql])'
        raise ConfigError(name, '(not shown)', why) from None
    except (sa_exc.ArgumentError, sa_exc.NoSuchModuleError, ValueError) as error:
        raise ConfigError(
            name, '(not shown)', f'unusable: {type(error).__name__}'
        ) from None
    except DATABASE_ERRORS as error:
        raise DatabaseUnavailable(f'{name}: {reason(error)}') from None


def _wait_for_postgresql(
    engine: sa.Engine, group: cfg.ConfigOpts.GroupAttr, name: str
) -> None:
    """Wait as oslo.db waits for MySQL. For PostgreSQL, oslo.db recognises only the
    messages of libpq before version 14.

    :raises DBAPIError: the server has no such database, refuses the user, or did not
        answer any try.
    """
    for attempt in itertools.count():
        try:
            engine.connect().close()
            return
        except sa_exc.DBAPIError as error:
            # FATAL marks a message of the server itself, which is final as a rule.
            is_final = 'FATAL' in str(error) and 'starting up' not in str(error)
            if is_final or attempt == group.max_retries:
                raise
            why = reason(error)
        LOG.warning('%s does not answer, and is tried again: %s', name, why)
        time.sleep(group.retry_interval)


def _with_timeouts(url: str, seconds: float) -> str:
    """Add timeouts of the driver to a URL, unless the URL sets timeouts: a thread
    waiting for ever would also keep the process from ending."""
    if seconds == math.inf:
        return url

    parsed = sa.engine.make_url(url)
    limit = max(1, math.ceil(seconds))
    if parsed.get_driver_name() in MYSQL_DRIVERS:
        timeouts = {'read_timeout': limit, 'write_timeout': limit}
    elif parsed.get_driver_name() in LIBPQ_DRIVERS:
        # libpq has no timeout for an answer: statement_timeout ends slow statements,
        # and the keepalives notice a server that has vanished.
        timeouts = {
            'keepalives_idle': max(1, limit // 2),
            'keepalives_interval': max(1, limit // 6),
            'keepalives_count': 3,
            'tcp_user_timeout': limit * 1000,
        }
        options = parsed.query.get('options', '')
        if isinstance(options, str) and 'statement_timeout' not in options:
            extended = f'{options} -c statement_timeout={limit * 1000}'.strip()
            parsed = parsed.update_query_dict({'options': extended})
    else:
        return url
    timeouts['connect_timeout'] = min(limit, MAX_CONNECT_TIMEOUT_S)

    missing = {}
    for name, value in timeouts.items():
        if name not in parsed.query:
            missing[name] = str(value)
    return parsed.update_query_dict(missing).render_as_string(hide_password=False)


def filled(template: str, own: str | None, name: str) -> str:
    """Fill the URL of a cell mapping with the parts of ``[database] connection``.

    nova lets the URL of a cell mapping be a template (``{username}``, ``{password}``
    and so on), so every host can have separate credentials. A template has the syntax
    of Python's ``str.format``, but may only use plain names: a template comes from a
    database, and must neither reach into objects nor produce texts of unlimited length.
    ``{path}`` comes without the leading slash. ``{hostname2}`` is the second host of
    ``connection``, if ``connection`` names several; likewise for user name, password
    and port. An invalid template stays unfilled, with an error in the log.

    :param own: the URL of ``[database] connection``.
    :param name: name of the cell's URL in the log.
    """
    if not own:
        if '{' in template:
            LOG.error(
                'The URL of %s is a template, and [database] connection is not set',
                name,
            )
        return template

    try:
        for _, field, spec, conversion in string.Formatter().parse(template):
            if field is not None and (spec or conversion or not field.isidentifier()):
                raise ValueError('no name alone')
        return template.format_map(_parts(own))
    except (LookupError, ValueError) as error:
        LOG.error('The URL of %s cannot be filled: %s', name, type(error).__name__)
        return template


def _parts(own: str) -> dict[str, object]:
    """The parts of a URL, by name in templates.

    :raises ValueError: the port of a URL is no number.
    """
    url = urlsplit(own)
    values: dict[str, object] = {
        'scheme': url.scheme,
        'username': url.username,
        'password': url.password,
        'hostname': url.hostname,
        'port': url.port,
        'query': url.query,
        'fragment': url.fragment,
        'path': url.path.lstrip('/'),
    }
    if ',' not in url.netloc:
        return values

    for number, part in enumerate(url.netloc.split(','), 1):
        credentials = ''
        address = part
        if '@' in part:
            credentials, _, address = part.partition('@')
        username, colon, password = credentials.partition(':')
        hostname, port = netutils.parse_host_port(address)
        values[f'username{number}'] = username
        values[f'password{number}'] = password if colon else None
        values[f'hostname{number}'] = hostname
        values[f'port{number}'] = port
    return values


def checked(url: str, name: str) -> str:
    """Check the TLS parameters of a URL, and translate them for the driver.

    :param name: name of the URL in errors.
    :raises ConfigError: a TLS file is unusable, or the driver does not know a
        parameter.
    :raises ArgumentError: the text is no URL.
    """
    parsed = sa.engine.make_url(url)
    driver = parsed.get_driver_name()
    if driver not in MYSQL_DRIVERS:
        return url

    # A parameter that stands in the URL twice has a tuple of values.
    query = {
        key: value for key, value in parsed.query.items() if isinstance(value, str)
    }
    if 'ssl_key_password' not in query:
        tls.check_files({f'{key} of {name}': query.get(key) for key in FILES})

    if driver == 'pymysql':
        connection_class = parsed.get_dialect().import_dbapi().Connection
        parameters = inspect.signature(connection_class).parameters
        for key in query:
            if key.startswith('ssl_') and key not in (*parameters, *OF_SQLALCHEMY):
                raise ConfigError(name, '(not shown)', f'there is no parameter {key}')
        if changes := _translated(query):
            parsed = parsed.difference_update_query([VERIFY_CERT, VERIFY_IDENTITY])
            return parsed.update_query_dict(changes).render_as_string(
                hide_password=False
            )
    return url


def _translated(query: Mapping[str, str]) -> dict[str, str]:
    """Parameters with the effect of ``ssl_verify_cert`` and ``ssl_verify_identity``
    beside ``ssl_ca``.

    SQLAlchemy passes ``ssl_ca``, ``ssl_cert`` and ``ssl_key`` as a dictionary. PyMySQL
    ignores the dictionary together with either of the two parameters, and then trusts a
    different certificate authority, or no authority. With ``ssl_ca`` alone PyMySQL
    verifies the certificate and the host name.
    """
    if 'ssl_ca' not in query or not query.keys() & {VERIFY_CERT, VERIFY_IDENTITY}:
        return {}
    if query.get(VERIFY_IDENTITY, '').lower() not in OFF:
        return {HOSTNAME: 'true'}
    if query.get(VERIFY_CERT, 'true').lower() not in OFF:
        return {HOSTNAME: query.get(HOSTNAME, 'false')}
    return {}
