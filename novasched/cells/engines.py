# SPDX-License-Identifier: Apache-2.0
"""Connections to the databases, with oslo.db's options and its handling of loss."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

from oslo_config import cfg
from oslo_db import exception as db_exc
from oslo_db.sqlalchemy import engines
from sqlalchemy import exc as sa_exc

from novasched.cells.schema import DATABASE_ERRORS, Database, reason
from novasched.errors import ConfigError, DatabaseUnavailable

_HOLE = re.compile(r'\{(\w+)\}')


def connect(group: cfg.ConfigOpts.GroupAttr, url: str, name: str, wait: bool = False) -> Database:
    """A database with the pool and retry options of ``[database]`` or ``[api_database]``.

    :param name: what errors and logs call it; never the URL, which holds a password.
    :param wait: try to reach it, ``max_retries`` times every ``retry_interval`` seconds.
    :raises ConfigError: the URL cannot be used.
    :raises DatabaseUnavailable: it cannot be reached.
    """
    options = {
        'connection_recycle_time': group.connection_recycle_time,
        'max_retries': group.max_retries if wait else 0,
        'retry_interval': group.retry_interval,
        'connection_debug': group.connection_debug,
        'mysql_sql_mode': group.mysql_sql_mode,
        'connection_parameters': group.connection_parameters or None,
    }
    if not url.startswith('sqlite'):
        options['max_pool_size'] = group.max_pool_size
        options['max_overflow'] = group.max_overflow
        options['pool_timeout'] = group.pool_timeout
    try:
        return Database(engines.create_engine(url, **options), name)
    except (sa_exc.ArgumentError, sa_exc.NoSuchModuleError, ImportError, ValueError) as error:
        raise ConfigError(name, '(not shown)', f'unusable: {type(error).__name__}') from None
    except (db_exc.DBError, *DATABASE_ERRORS) as error:
        raise DatabaseUnavailable(f'{name}: {reason(error)}') from None


def filled(template: str, own: str | None) -> str:
    """A cell's connection URL whose ``{username}`` and the like are taken from ours.

    nova lets cell mappings hold such templates, so that each host has its own
    credentials; ``{path}`` comes without its leading slash.
    """
    if not own or '{' not in template:
        return template
    parts = urlsplit(own)
    values = {
        'scheme': parts.scheme,
        'username': parts.username,
        'password': parts.password,
        'hostname': parts.hostname,
        'port': parts.port,
        'path': parts.path.lstrip('/'),
        'query': parts.query,
        'fragment': parts.fragment,
    }
    return _HOLE.sub(lambda hole: str(values.get(hole[1]) or ''), template)


def dispose(*databases: Database) -> None:
    """Close pooled connections, so that none is shared with a forked process."""
    for database in databases:
        database.engine.dispose()
