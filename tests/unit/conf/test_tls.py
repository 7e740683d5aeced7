# SPDX-License-Identifier: Apache-2.0
"""Errors of TLS files name the option."""

import pytest
import sqlalchemy as sa
import trustme

from novasched.cells.engines import checked
from novasched.conf import tls
from novasched.conf.errors import ConfigError

NAMES = ('ca', 'cert', 'key')
URL = 'mysql+pymysql://nova:p%40ss@db.example/nova'


@pytest.fixture
def files(tmp_path):
    """Paths by name: an authority, two certificates with keys, and a text file."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / 'ca')
    for name in ('one', 'two'):
        issued = authority.issue_cert(f'{name}.example')
        issued.cert_chain_pems[0].write_to_path(tmp_path / f'{name}.cert')
        issued.private_key_pem.write_to_path(tmp_path / f'{name}.key')
        issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / f'{name}.both')
    (tmp_path / 'text').write_text('no PEM\n')

    def path_of(name):
        return str(tmp_path / name)

    return path_of


@pytest.mark.parametrize(('authority', 'certificate', 'key', 'wrong'), [
    (None, None, None, None),
    ('ca', None, None, None),
    ('', None, None, None),  # a directory
    ('ca', 'one.cert', 'one.key', None),
    (None, 'one.both', None, None),
    ('gone', None, None, 'ca = {}: No such file or directory'),
    ('text', None, None, 'ca = {}: no certificate in PEM format'),
    ('ca', 'gone', 'one.key', 'cert = {}: No such file or directory'),
    ('ca', 'one.cert', 'gone', 'key = {}: No such file or directory'),
    ('ca', '', 'one.key', 'cert = {}: Is a directory'),
    (None, 'text', 'one.key', 'cert = {}: no certificate in PEM format'),
    (None, 'one.cert', 'two.key', 'cert = {}: no certificate in PEM format'),
    (None, 'one.cert', None, 'cert = {}: no certificate in PEM format'),
])  # fmt: skip
def test_the_error_of_an_unusable_tls_file_names_option_and_path(
    files, authority, certificate, key, wrong
):
    """The error has the option and the path. An option without a path is skipped."""
    paths = dict.fromkeys(NAMES)
    for option, name in zip(NAMES, (authority, certificate, key), strict=True):
        if name is not None:
            paths[option] = files(name)

    if wrong is None:
        tls.check_files(paths)
        return
    with pytest.raises(ConfigError) as raised:
        tls.check_files(paths)
    option = wrong.partition(' ')[0]
    assert str(raised.value).startswith(wrong.format(paths[option]))


@pytest.mark.parametrize(
    ('query', 'checked_query'),
    [
        ('', {}),
        ('charset=utf8', {'charset': 'utf8'}),
        ('ssl_verify_cert=true', {'ssl_verify_cert': 'true'}),
        ('ssl_ca=CA', {'ssl_ca': 'CA'}),
        (
            'ssl_ca=CA&ssl_check_hostname=false',
            {'ssl_ca': 'CA', 'ssl_check_hostname': 'false'},
        ),
        (
            'ssl_ca=CA&ssl_verify_cert=true',
            {'ssl_ca': 'CA', 'ssl_check_hostname': 'false'},
        ),
        (
            'ssl_ca=CA&ssl_verify_identity=0',
            {'ssl_ca': 'CA', 'ssl_check_hostname': 'false'},
        ),
        (
            'ssl_ca=CA&ssl_verify_identity=1',
            {'ssl_ca': 'CA', 'ssl_check_hostname': 'true'},
        ),
        (
            'ssl_ca=CA&ssl_verify_cert=true&ssl_verify_identity=true',
            {'ssl_ca': 'CA', 'ssl_check_hostname': 'true'},
        ),
        (
            'ssl_ca=CA&ssl_verify_cert=false',
            {'ssl_ca': 'CA', 'ssl_verify_cert': 'false'},
        ),
    ],
)
def test_parameters_that_make_pymysql_ignore_ssl_ca_are_replaced(
    files, query, checked_query
):
    """With an authority, parameters with which PyMySQL would ignore the authority are
    replaced. The remaining URL stays."""
    text = f'{URL}?{query}'.replace('=CA', f'={files("ca")}')

    url = sa.make_url(checked(text, 'db'))

    expected = dict(checked_query)
    if 'ssl_ca' in expected:
        expected['ssl_ca'] = files('ca')
    assert dict(url.query) == expected
    assert url.set(query={}) == sa.make_url(URL)


def test_an_unknown_parameter_of_pymysql_is_refused():
    """An unknown parameter of PyMySQL is an error at the start. Parameters of further
    drivers are not checked."""
    with pytest.raises(ConfigError, match='there is no parameter ssl_veirfy_cert'):
        checked(f'{URL}?ssl_veirfy_cert=true', '[database] connection')
    for url in ('sqlite://', 'postgresql+psycopg2://u:p@h/d?sslmode=require'):
        assert checked(url, 'db') == url
