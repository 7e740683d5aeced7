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
"""Parameters of URLs for TLS."""
VERIFY_CERT = 'ssl_verify_cert'
VERIFY_IDENTITY = 'ssl_verify_identity'
HOSTNAME = 'ssl_check_hostname'
OF_SQLALCHEMY = ('ssl_capath', 'ssl_cipher', HOSTNAME)
OFF = ('0', 'false', 'no', 'none', '')
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
    """A database with the pool and retry options of ``[database]`` or
    ``[api_database]``.

    :param name: its name in errors and logs; never the URL, which holds a password.
    :param wait: try to reach it, ``max_retries`` times every ``retry_interval``
        seconds.
    :param patience: seconds that an operation may wait for its answer.
    :raises ConfigError: the URL cannot be used.
    :raises DatabaseUnavailable: it cannot be reached.
    """
    learn([url])
    options = {name: group[name] for name in ENGINE_OPTIONS}
    if not url.startswith('sqlite'):
        options |= {name: group[name] for name in POOL_OPTIONS}

    if not wait or url.startswith('postgresql'):
        options['max_retries'] = 0
    try:
        if group.connection_parameters:
            more = sa.engine.make_url(url).update_query_string(
                group.connection_parameters, append=True
            )
            url = more.render_as_string(hide_password=False)
        url = _with_patience(checked(url, name), patience)
        engine = engines.create_engine(url, **options)
        if wait and url.startswith('postgresql'):
            _wait_for_postgresql(engine, group, name)
        return Database(engine, name, patience)
    except ImportError as error:
        extra = '[postgresql]' if str(error.name).startswith('psycopg') else ''
        why = f'install {error.name}' + (
            f' (pip install novasched{extra})' if extra else ''
        )
        raise ConfigError(name, '(not shown)', f'unusable: {why}') from None
    except (sa_exc.ArgumentError, sa_exc.NoSuchModuleError, ValueError) as error:
        raise ConfigError(
            name, '(not shown)', f'unusable: {type(error).__name__}'
        ) from None
    except DATABASE_ERRORS as error:
        raise DatabaseUnavailable(f'{name}: {reason(error)}') from None


def _wait_for_postgresql(
    engine: sa.Engine, group: cfg.ConfigOpts.GroupAttr, name: str
) -> None:
    """Wait as oslo.db does for MySQL. It knows only the messages of libpq before
    version 14.

    :raises DBAPIError: there is no database, or it refuses us.
    """
    for attempt in itertools.count():
        try:
            engine.connect().close()
            return
        except sa_exc.DBAPIError as error:
            # FATAL is a message of the server itself, and mostly final.
            is_final = 'FATAL' in str(error) and 'starting up' not in str(error)
            if is_final or attempt == group.max_retries:
                raise
            why = reason(error)
        LOG.warning('%s does not answer, and is tried again: %s', name, why)
        time.sleep(group.retry_interval)


def _with_patience(url: str, seconds: float) -> str:
    """The URL with timeouts of the driver, unless it has its own: a thread that waits
    for ever would also keep the process from ending."""
    if seconds == math.inf:
        return url
    parsed = sa.engine.make_url(url)
    limit = max(1, math.ceil(seconds))
    if parsed.get_driver_name() in MYSQL_DRIVERS:
        limits = dict.fromkeys(
            ('connect_timeout', 'read_timeout', 'write_timeout'), limit
        )
    elif parsed.get_driver_name() in LIBPQ_DRIVERS:
        limits = {  # by which libpq notices a host that has vanished
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
    limits['connect_timeout'] = min(limit, MAX_CONNECT_TIMEOUT_S)
    missing = {
        name: str(each) for name, each in limits.items() if name not in parsed.query
    }
    return parsed.update_query_dict(missing).render_as_string(hide_password=False)


def filled(template: str, own: str | None, name: str) -> str:
    """A cell's connection URL whose ``{username}`` and the like are taken from ours.

    nova lets cell mappings hold such templates, so that each host has its own
    credentials. They are those of Python's ``str.format``, names alone: a template
    comes from a database, and is not to reach into objects or to make texts of any
    length. ``{path}`` comes without its leading slash; where our own URL names several
    hosts, ``{hostname2}`` is the second, and so on with what else is theirs. A template
    that cannot be filled stays as it is, with an error in the log.

    :param name: the name of the cell's URL in the log.
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
    """The parts of a URL, by the names that stand for them in templates.

    :raises ValueError: the port of a URL is no number.
    """
    url = urlsplit(own)
    hosts = url.netloc.split(',') if ',' in url.netloc else []
    names = ('scheme', 'username', 'password', 'hostname', 'port', 'query', 'fragment')
    values = {name: getattr(url, name) for name in names} | {
        'path': url.path.lstrip('/')
    }
    for number, each in enumerate(hosts, 1):
        who, at, where = each.partition('@')
        username, colon, password = (who if at else '').partition(':')
        values[f'username{number}'] = username
        values[f'password{number}'] = password if colon else None
        values[f'hostname{number}'], values[f'port{number}'] = netutils.parse_host_port(
            where if at else each
        )
    return values


def checked(url: str, name: str) -> str:
    """The URL as the driver understands it, with its TLS files checked.

    :param name: the name of the URL in errors.
    :raises ConfigError: a file that it names cannot be used, or the driver does not
        know a parameter.
    :raises ArgumentError: it is no URL.
    """
    parsed = sa.engine.make_url(url)
    driver = parsed.get_driver_name()
    if driver not in MYSQL_DRIVERS:
        return url
    query = {
        key: value for key, value in parsed.query.items() if isinstance(value, str)
    }
    if 'ssl_key_password' not in query:
        tls.check_files({f'{key} of {name}': query.get(key) for key in FILES})
    if driver == 'pymysql':
        known = inspect.signature(
            parsed.get_dialect().import_dbapi().Connection
        ).parameters
        for key in query:
            if key.startswith('ssl_') and key not in (*known, *OF_SQLALCHEMY):
                raise ConfigError(name, '(not shown)', f'there is no parameter {key}')
        if changes := _translated(query):
            parsed = parsed.difference_update_query([VERIFY_CERT, VERIFY_IDENTITY])
            return parsed.update_query_dict(changes).render_as_string(
                hide_password=False
            )
    return url


def _translated(query: Mapping[str, str]) -> dict[str, str]:
    """Parameters that have the effect of ``ssl_verify_cert`` and
    ``ssl_verify_identity`` beside ``ssl_ca``.

    SQLAlchemy hands ``ssl_ca``, ``ssl_cert`` and ``ssl_key`` over in a form that
    PyMySQL drops when it is also told to verify: it then knows another authority, or
    none. ``ssl_ca`` alone has it verify the certificate and the name.
    """
    if 'ssl_ca' not in query or not query.keys() & {VERIFY_CERT, VERIFY_IDENTITY}:
        return {}
    if query.get(VERIFY_IDENTITY, '').lower() not in OFF:
        return {HOSTNAME: 'true'}
    if query.get(VERIFY_CERT, 'true').lower() not in OFF:
        return {HOSTNAME: query.get(HOSTNAME, 'false')}
    return {}
