# SPDX-License-Identifier: Apache-2.0
"""No text shows a password, weak or strong, and the lines of novasched stay
unchanged."""

import ast
import base64
import io
import logging
import re
from pathlib import Path
from urllib.parse import quote

import kombu.exceptions
import pymysql
import requests
from hypothesis import given
from hypothesis import strategies as st
from keystoneauth1 import exceptions as ks_exc
from oslo_config import cfg
from oslo_db import exception as db_exc
from sqlalchemy import exc as sa_exc

import novasched
from novasched.conf import redaction
from novasched.conf.logs import Hiding
from novasched.conf.redaction import HIDDEN, Secrets

WORDS = (
    'nova',
    'placement',
    'rabbit',
    'guest',
    'password',
    'secret',
    'scheduler',
    'compute',
    'host',
    'hosts',
    'NUMA',
    'cells',
    'memory',
    'filter',
    'ComputeFilter',
    'instance',
    'ERROR',
    'novasched',
    'openstack',
    'nova-scheduler',
    'for',
    'candidates',
    'Placement',
    'database',
    'root',
    'service',
    'nova.scheduler',
    'openstack123',
)
word = st.sampled_from(WORDS)
drawn = st.text(
    'abcdefghkmnpqrstuvwxyzABCDEFGHKMNPQRTUVWXYZ23456789', min_size=16, max_size=40
)
odd = st.text('abKL19@/:#?$%&+,;=!*()[]{}|~^<> ', min_size=4, max_size=20).filter(
    lambda text: text == text.strip() and re.search('[a-zA-Z0-9]{4}', text)
)
any_secret = st.one_of(word, drawn, odd)
plain = st.one_of(word, drawn)
scheme = st.sampled_from(['mysql+pymysql', 'rabbit', 'http', 'https', 'postgresql'])


def as_token(secret, text):
    """True if a text shows a secret as a whole word, and not as a part of a name."""
    return bool(
        re.search(
            rf'(?<![\w.-]){re.escape(secret)}(?![\w-])(?!\.\w)', text, re.IGNORECASE
        )
    )


@given(scheme, any_secret, any_secret)
def test_a_url_shows_no_password(scheme, secret, other):
    """A URL has no password, encoded or plain. An unknown password without a space is
    removed too."""
    for password in (secret, quote(secret, safe='')):
        url = f'{scheme}://user:{password}@host/nova'
        text = f'it is at {url} now'
        known = Secrets([url])
        shown = f'it is at {scheme}://{HIDDEN}@host/nova now'
        assert known.redact(text) == shown
        if ' ' not in password:
            assert Secrets([]).redact(text) == shown
        assert f'{password}@' not in known.hide(text)
        assert f'{secret}@' not in known.hide(text)


@given(
    any_secret,
    st.sampled_from(['X-Auth-Token', 'x-subject-token', 'Authorization', 'Cookie']),
)
def test_a_header_with_credentials_is_masked(secret, name):
    """The value of a header with credentials is masked."""
    basic = f'Basic {base64.b64encode(secret.encode()).decode()}'
    for value in (secret, basic):
        for text in (
            f'{name}: {{}}',
            f"headers {{{{'{name}': '{{}}', 'Accept': 'json'}}}}",
            f'{{{{"{name}": "{{}}", "Accept": "json"}}}}',
            f'curl -g -i -X GET http://host/ -H "{name}: {{}}" -H "Accept: json"',
        ):
            assert Secrets([]).redact(text.format(value)) == text.format(HIDDEN)


def a_log(name):
    """A logger, and its output: lines with level and name."""
    log = logging.Logger(name)
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(
        Hiding(logging.Formatter('%(levelname)s %(name)s %(message)s'))
    )
    log.addHandler(handler)
    return log, output


def line_of(name, message, *args, exc_info=None):
    log, output = a_log(name)
    log.error(message, *args, exc_info=exc_info)
    return output.getvalue()


def known(*values):
    """Make the values the only known secrets."""
    redaction.KNOWN.__dict__ = vars(Secrets(values))


LEVELS = ('debug', 'info', 'warning', 'error', 'critical', 'exception')


def is_log_call(node):
    """True for a call of a logger with a constant message."""
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
    )


def log_messages():
    """Every message that novasched logs, before its formatting."""
    messages = []
    for path in sorted(Path(novasched.__file__).parent.rglob('*.py')):
        for node in ast.walk(ast.parse(path.read_text())):
            if is_log_call(node):
                messages.append(str(node.args[0].value))
    return messages


OURS = tuple(log_messages())


@given(
    st.sampled_from(OURS),
    word,
    st.sampled_from(['nova.filters', 'nova', 'novasched.rpc']),
)
def test_messages_of_novasched_stay_unchanged_by_redaction(sentence, secret, logger):
    """A message of novasched and the names in the message stay unchanged, even if a
    word is a password."""
    known(secret, f'mysql://{secret}:{secret}@{secret}/{secret}')
    places = re.findall(r'%[.\d]*[a-z]', sentence)
    args = []
    for place in places:
        if place[-1] in 'df':
            args.append(7)
        else:
            args.append(f'{secret}-1')
    assert (
        line_of(logger, sentence, *args) == f'ERROR {logger} {sentence % tuple(args)}\n'
    )
    known()


@given(plain, st.sampled_from(['oslo_service.service', 'nova.scheduler']))
def test_a_list_of_all_options_shows_no_secret(secret, logger):
    """A list of all options shows no secret; names and other values stay."""
    known(secret, f'rabbit://u:{secret}@h/')
    conf = cfg.ConfigOpts()
    conf.register_opt(
        cfg.StrOpt('weight_classes', default='nova.scheduler.weights.all_weighers')
    )
    conf.register_opt(cfg.StrOpt('memcache_password', default=secret))
    conf.register_opt(
        cfg.StrOpt('transport', default=f'rabbit://u:{secret}@h:1,u:{secret}@i:2/')
    )
    conf([])
    log, output = a_log(logger)
    conf.log_opt_values(log, logging.INFO)
    lines = {' '.join(line.split()) for line in output.getvalue().splitlines()}
    assert lines >= {
        f'INFO {logger} weight_classes = nova.scheduler.weights.all_weighers',
        f'INFO {logger} memcache_password = {HIDDEN}',
        f'INFO {logger} transport = rabbit://{HIDDEN}@i:2/',
    }
    known()


def errors_about(secret):
    """Errors of libraries after a wrong URL or a wrong password."""
    return [
        pymysql.OperationalError(
            1045, f"Access denied for user '{secret}'@'h' (password {secret})"
        ),
        db_exc.DBConnectionError(
            pymysql.OperationalError(
                2003, f"Can't connect to MySQL server on '{secret}@h'"
            )
        ),
        sa_exc.DBAPIError(
            'SELECT 1', {'password': secret}, ValueError(f'bad {secret}')
        ),
        sa_exc.ArgumentError(
            f"Could not parse URL from string 'mysql://u:{secret}@h:x/n'"
        ),
        kombu.exceptions.OperationalError(
            f'[Errno -2] amqp://u:{secret}@h// is away ({secret})'
        ),
        requests.ConnectionError(
            f"HTTPConnectionPool(host='{secret}', port=80): Max retries"
        ),
        requests.exceptions.InvalidURL(f'Failed to parse: http://u:{secret}@h:x/'),
        ks_exc.ConnectFailure(
            f'Unable to establish connection to http://u:{secret}@h: {secret}'
        ),
        ks_exc.Unauthorized(f"token '{secret}' is not valid"),
        KeyError(secret),
    ]


@given(
    plain.filter(lambda secret: len(secret) >= redaction.MIN_TOKEN_CHARACTERS),
    st.integers(0, 9),
)
def test_errors_of_libraries_show_no_secret(secret, number):
    """Neither the text nor the traceback of an error shows a secret. This holds for the
    loggers of nova and of libraries."""
    known(secret)
    error = errors_about(secret)[number]
    assert not as_token(secret, redaction.hide(error))
    for logger in ('nova.scheduler', 'oslo_db.engines'):
        start = f'ERROR {logger} '
        line = line_of(logger, 'it fails: %s', error)
        assert line.startswith(start)
        assert not as_token(secret, line.removeprefix(start))
        try:
            raise RuntimeError(f'for {secret}') from error
        except RuntimeError as outer:
            line = line_of(logger, 'x', exc_info=outer)
        assert line.startswith(f'{start}x\n')
        for line_of_traceback in line.splitlines()[1:]:
            if not line_of_traceback.startswith('  '):
                message = line_of_traceback.partition(': ')[2]
                assert not as_token(secret, message)
    known()
