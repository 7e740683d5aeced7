# SPDX-License-Identifier: Apache-2.0
"""Connections to the databases, with oslo.db's options and its handling of loss."""

from __future__ import annotations

import logging
import math
import string
from urllib.parse import urlsplit

import sqlalchemy as sa
from oslo_config import cfg
from oslo_db import exception as db_exc
from oslo_db.sqlalchemy import engines
from oslo_utils import netutils
from sqlalchemy import exc as sa_exc

from novasched.cells.schema import DATABASE_ERRORS, Database, reason
from novasched.cells.tls import checked
from novasched.errors import ConfigError, DatabaseUnavailable
from novasched.secrets import learn

TIMEOUTS = ('connect_timeout', 'read_timeout', 'write_timeout')
CONNECT = 10
"""Seconds that the driver waits for a connection by itself; no reason to wait longer."""
LOG = logging.getLogger('nova.objects.cell_mapping')


def connect(
    group: cfg.ConfigOpts.GroupAttr,
    url: str,
    name: str,
    wait: bool = False,
    patience: float | None = None,
) -> Database:
    """A database with the pool and retry options of ``[database]`` or ``[api_database]``.

    :param name: what errors and logs call it; never the URL, which holds a password.
    :param wait: try to reach it, ``max_retries`` times every ``retry_interval`` seconds.
    :param patience: for so many seconds a server may be silent while it is asked.
    :raises ConfigError: the URL cannot be used.
    :raises DatabaseUnavailable: it cannot be reached.
    """
    learn([url])
    options = {
        'connection_recycle_time': group.connection_recycle_time,
        'max_retries': group.max_retries if wait else 0,
        'retry_interval': group.retry_interval,
        'connection_debug': group.connection_debug,
        'mysql_sql_mode': group.mysql_sql_mode,
    }
    if not url.startswith('sqlite'):
        options['max_pool_size'] = group.max_pool_size
        options['max_overflow'] = group.max_overflow
        options['pool_timeout'] = group.pool_timeout
    try:
        url = checked(_with_parameters(url, group.connection_parameters), name)
        if patience is not None:
            url = _with_patience(url, patience)
        return Database(engines.create_engine(url, **options), name, patience)
    except (sa_exc.ArgumentError, sa_exc.NoSuchModuleError, ImportError, ValueError) as error:
        raise ConfigError(name, '(not shown)', f'unusable: {type(error).__name__}') from None
    except (db_exc.DBError, *DATABASE_ERRORS) as error:
        raise DatabaseUnavailable(f'{name}: {reason(error)}') from None


def _with_parameters(url: str, parameters: str | None) -> str:
    """The URL with those parameters, too.

    :raises ArgumentError: it is no URL.
    """
    if not parameters:
        return url
    whole = sa.engine.make_url(url).update_query_string(parameters, append=True)
    return whole.render_as_string(hide_password=False)


def _with_patience(url: str, seconds: float) -> str:
    """The URL with the driver's own timeouts, where it has them and the URL does not: a
    thread that waits for a frozen server for ever would also keep the process from ending.

    :raises ArgumentError: it is no URL.
    :raises ValueError: its port is no number.
    """
    parsed = sa.engine.make_url(url)
    if parsed.get_driver_name() not in ('pymysql', 'mysqldb'):
        return url
    limit = max(1, math.ceil(seconds))
    limits = dict.fromkeys(TIMEOUTS, limit) | {'connect_timeout': min(limit, CONNECT)}
    missing = {name: str(each) for name, each in limits.items() if name not in parsed.query}
    return parsed.update_query_dict(missing).render_as_string(hide_password=False)


def filled(template: str, own: str | None, name: str) -> str:
    """A cell's connection URL whose ``{username}`` and the like are taken from ours.

    nova lets cell mappings hold such templates, so that each host has its own credentials.
    They are those of Python's ``str.format``, names alone: a template comes from a database,
    and is not to reach into objects or to make texts of any length. ``{path}`` comes without
    its leading slash; where our own URL names several hosts, ``{hostname2}`` is the second,
    and so on with what else is theirs. A template that cannot be filled stays as it is, with
    an error in the log.

    :param name: what the log calls the cell's URL.
    """
    if not own:
        if '{' in template:
            LOG.error('The URL of %s is a template, and [database] connection is not set', name)
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
    """What a template may name.

    :raises ValueError: the port of a URL is no number.
    """
    url = urlsplit(own)
    hosts = url.netloc.split(',') if ',' in url.netloc else []
    values: dict[str, object] = {
        'scheme': url.scheme,
        'username': url.username,
        'password': url.password,
        'hostname': url.hostname,
        'port': url.port,
        'path': url.path.lstrip('/'),
        'query': url.query,
        'fragment': url.fragment,
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


def dispose(*databases: Database) -> None:
    """Close pooled connections, so that none is shared with a forked process."""
    for database in databases:
        database.close()
