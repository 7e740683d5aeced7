# SPDX-License-Identifier: Apache-2.0
"""What is hidden in texts, and what is left to be read."""

import pytest

from novasched.secrets import Secrets, is_telling


@pytest.mark.parametrize(
    ('value', 'text', 'shown'),
    [
        ('s3cret', 'token s3cret', 'token ***'),
        ('nova', 'nova-scheduler is novaish', '***-scheduler is novaish'),
        ('a-long-secret', 'prefixa-long-secretsuffix', 'prefix***suffix'),
        ('abc', 'abc is short', 'abc is short'),
        ('mysql://u:p4ssword@h/n', "no host 'p4ssword'", "no host '***'"),
        ('mysql://u:half@other@h/n', "no host 'other@h'", "no host '***@h'"),
        ('mysql://u:a-secret@x@h/n', "no host 'x@h'", "no host '***@h'"),
        ('mysql://u:with/slash@h/n', 'port with', 'port ***'),
        ('mysql://u:with#hash@h/n', 'invalid int: with', 'invalid int: ***'),
        ('mysql://u:per%2Fcent@h/n', 'per/cent, per%2Fcent', '***, ***'),
        ('mysql://u@h/n', "for user 'u'@'h'", "for user 'u'@'h'"),
        ('rabbit://u:first@h1:1,u:second@h2:2/', 'first second at h1:1', '*** *** at h1:1'),
        ('rabbit://u:with,comma@h1/', 'port with, user comma', 'port ***, user ***'),
        ('http://host:8778/path', 'http://host:8778/path/x', 'http://host:8778/path/x'),
        ('', 'GET http://me:any@host/', 'GET http://***@host/'),
        ('mysql://u:a-Secret@X@h/n', "no host 'a-secret@x@h'", "no host '***@h'"),
        ('mysql://u:some$word@h/n', 'no such option word', 'no such option ***'),
        ('', "at /nova.conf:7, No '=' found: 'my pass'", "at /nova.conf:7, No '=' found: ***"),
        ('', 'at line 7, Key cannot be empty: "x\'y"', 'at line 7, Key cannot be empty: ***'),
    ],
)
def test_hidden(value, text, shown):
    """Secrets go, whole and in the pieces of a wrong parse; hosts and users stay."""
    assert Secrets.of([value]).hide(text) == shown


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
def test_telling(name, value, telling):
    """An option is secret by its name, or since its value is a URL."""
    assert is_telling(name, value) is telling
