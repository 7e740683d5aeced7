# SPDX-License-Identifier: Apache-2.0
"""Secrets that are hidden in texts, and words that stay."""

import pytest

from novasched.conf.redaction import (
    Secrets,
    hide,
    is_random,
    is_telling,
    redact,
    secret_in_use,
)


@pytest.mark.parametrize(
    ('value', 'text', 'shown'),
    [
        ('s3cret', 'token s3cret', 'token ***'),
        ('nova', 'nova-scheduler is novaish', 'nova-scheduler is novaish'),
        ('nova', "no user nova, or 'nova'; nova.", "no user ***, or '***'; ***."),
        (
            'nova',
            'nova.conf of nova.scheduler.weights',
            'nova.conf of nova.scheduler.weights',
        ),
        ('a-long-secret', 'prefixa-long-secretsuffix', 'prefixa-long-secretsuffix'),
        ('q7Rz-0fK2-99xW', 'prefixq7rz-0fk2-99xwsuffix', 'prefix***suffix'),
        ('abc', 'abc is short', 'abc is short'),
        ('mysql://u:p4ssword@h/n', "no host 'p4ssword'", "no host '***'"),
        ('mysql://u:half@other@h/n', "no host 'other@h'", "no host '***@h'"),
        ('mysql://u:with/slash@h/n', 'port with', 'port ***'),
        ('mysql://u:with#hash@h/n', 'invalid int: with', 'invalid int: ***'),
        ('mysql://u:per%2Fcent@h/n', 'per/cent, per%2Fcent', '***, ***'),
        ('mysql://u@h/n', "for user 'u'@'h'", "for user 'u'@'h'"),
        (
            'rabbit://u:first@h1:1,u:second@h2:2/',
            'first second at h1:1',
            '*** *** at h1:1',
        ),
        ('rabbit://u:with,comma@h1/', 'port with, user comma', 'port ***, user ***'),
        ('http://host:8778/path', 'http://host:8778/path/x', 'http://host:8778/path/x'),
        ('mysql://u:a-Secret@X@h/n', "no host 'a-secret@x@h'", "no host '***@h'"),
        ('mysql://u:some$word@h/n', 'no such option word', 'no such option ***'),
        (
            '',
            "at /nova.conf:7, No '=' found: 'my pass'",
            "at /nova.conf:7, No '=' found: ***",
        ),
        (
            '',
            'at line 7, Key cannot be empty: "x\'y"',
            'at line 7, Key cannot be empty: ***',
        ),
    ],
)
def test_texts_of_libraries_hide_secrets_but_keep_longer_names(value, text, shown):
    """Texts of libraries hide secrets as a whole, and the pieces of a wrong parse.
    Hosts, users and longer names stay."""
    assert Secrets([value]).hide(text) == shown


@pytest.mark.parametrize(
    ('value', 'text', 'shown'),
    [
        ('nova', 'nova asks nova.conf for "nova"', 'nova asks nova.conf for "nova"'),
        ('numa', 'NUMA cells lack memory', 'NUMA cells lack memory'),
        ('nova', 'control_exchange = nova', 'control_exchange = nova'),
        ('nova', 'placement.password = nova', 'placement.password = ***'),
        (
            'nova',
            "{'password': 'nova', 'user': 'nova'}",
            "{'password': '***', 'user': 'nova'}",
        ),
        ('nova', '"auth_token": "nova"', '"auth_token": "***"'),
        ('nova', 'the token: novae', 'the token: novae'),
        ('nova', "['password:nova', 'db:nova']", "['password:***', 'db:nova']"),
        (
            'http://u:pa ss@host',
            'no host in http://u:pa ss@host',
            'no host in http://***@host',
        ),
        ('', 'host@backend and me@example.org', 'host@backend and me@example.org'),
        ('q7Rz-0fK2-99xW', 'prefixq7rz-0fk2-99xwsuffix', 'prefix***suffix'),
        (
            'rabbit://[fd00:1:2:3::10]:5672/',
            'at [fd00:1:2:3::10]:5672',
            'at [fd00:1:2:3::10]:5672',
        ),
    ],
)
def test_texts_of_novasched_hide_only_unmistakable_secrets(value, text, shown):
    """Texts of novasched hide unmistakable secrets, and random secrets anywhere."""
    assert Secrets([value]).redact(text) == shown


TOO_SHORT = '9f86d081884'
RANDOM = ('9f86d081884c7d659a2f', 'kG7bQz2mXw9RtLp4', 'q7Rz-0fK2-99xW')
CHOSEN = (
    TOO_SHORT,
    'nova',
    'openstack123',
    'correct-horse-battery-staple',
    'PlacementPassword1',
    'nova-compute-0001',
    'aggregate_image_properties_isolation',
    '123456789012',
)


@pytest.mark.parametrize('secret', [*RANDOM, *CHOSEN])
def test_only_generated_secrets_count_as_random(secret):
    """A generated secret is random, a secret that people choose is not."""
    assert is_random(secret) is (secret in RANDOM)


@pytest.mark.parametrize(
    ('name', 'value', 'telling'),
    [
        ('password', 'x', True),
        ('rabbit_password', 'x', True),
        ('token', 'x', True),
        ('memcache_secret_key', 'x', True),
        ('connection', 'x', True),
        ('any', 'mysql://u:p@h', True),
        ('inject_password', 'True', False),
        ('connection_recycle_time', '3600', False),
        ('passthrough_whitelist', '{}', False),
    ],
)
def test_an_option_is_secret_by_name_or_if_the_value_is_a_url(name, value, telling):
    """An option is secret by its name, or if its value is a URL."""
    assert is_telling(name, value) is telling


FERNET = 'gAAAAABmQ2xk-kG7bQz2mXw9RtLp4_7f3a=='


@pytest.mark.parametrize(
    ('secret', 'text', 'shown'),
    [
        (FERNET, f'got {FERNET}.', 'got ***==.'),
        (FERNET, f"{{'auth_token': '{FERNET}'}}", "{'auth_token': '***=='}"),
        (FERNET, FERNET.replace('=', '%3D'), '***%3D%3D'),
        (f'{FERNET[:20]}/+"', f'a {FERNET[:20]}/+"', 'a ***'),
        ('e2e', 'e2e-user', 'e2e-user'),
        ('demo:pass', "no user 'demo:pass', demo", "no user '***', demo"),
        (None, 'None', 'None'),
        ('', 'text', 'text'),
        (['x'], 'text', 'text'),
    ],
)
def test_a_secret_is_hidden_only_while_in_use(secret, text, shown):
    """A secret is hidden while it is in use, and no longer."""
    with secret_in_use(secret):
        assert hide(text) == shown
    assert secret is None or hide(f'say {FERNET}') == f'say {FERNET}'


def test_a_shared_token_is_hidden_until_the_last_request_ends():
    """Two requests with the same token hide it until the later one ends."""
    with secret_in_use(FERNET):
        with secret_in_use(FERNET), secret_in_use(RANDOM[1]):
            assert redact(f'{FERNET} {RANDOM[1]}') == '***== ***'
        assert redact(f'{FERNET} {RANDOM[1]}') == f'***== {RANDOM[1]}'
