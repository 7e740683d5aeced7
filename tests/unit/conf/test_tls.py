# SPDX-License-Identifier: Apache-2.0
"""Files of TLS that cannot be used are told by the option that names them."""

import pytest
import sqlalchemy as sa
import trustme

from novasched.cells.engines import checked
from novasched.conf import tls
from novasched.conf.errors import ConfigError

NAMES = 'ca', 'cert', 'key'
URL = 'mysql+pymysql://nova:p%40ss@db.example/nova'


@pytest.fixture
def files(tmp_path):
    """Paths by name: an authority, two certificates with their keys, and what is
    none."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(tmp_path / 'ca')
    for name in ('one', 'two'):
        issued = authority.issue_cert(f'{name}.example')
        issued.cert_chain_pems[0].write_to_path(tmp_path / f'{name}.cert')
        issued.private_key_pem.write_to_path(tmp_path / f'{name}.key')
        issued.private_key_and_cert_chain_pem.write_to_path(tmp_path / f'{name}.both')
    (tmp_path / 'text').write_text('no PEM\n')
    return lambda name: str(tmp_path / name)


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
def test_files(files, authority, certificate, key, wrong):
    """What cannot be used is named with its option; what is not named is left."""
    paths = [
        None if name is None else files(name) for name in (authority, certificate, key)
    ]
    if wrong is None:
        tls.check_files(dict(zip(NAMES, paths, strict=True)))
        return
    with pytest.raises(ConfigError) as raised:
        tls.check_files(dict(zip(NAMES, paths, strict=True)))
    option = wrong.partition(' ')[0]
    assert str(raised.value).startswith(wrong.format(paths[NAMES.index(option)]))


@pytest.mark.parametrize(
    ('asked', 'given'),
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
def test_what_a_url_wants_verified(files, asked, given):
    """With an authority, what PyMySQL understands stands in the place of what it would
    forget the authority for; the rest of the URL stays."""
    url = sa.make_url(checked(f'{URL}?{asked}'.replace('=CA', f'={files("ca")}'), 'db'))
    assert {k: 'CA' if v == files('ca') else v for k, v in url.query.items()} == given
    assert url.set(query={}) == sa.make_url(URL)


def test_other_parameters():
    """One that nobody knows would otherwise stop the first connection; other drivers
    have parameters of their own."""
    with pytest.raises(ConfigError, match='there is no parameter ssl_veirfy_cert'):
        checked(f'{URL}?ssl_veirfy_cert=true', '[database] connection')
    for url in ('sqlite://', 'postgresql+psycopg2://u:p@h/d?sslmode=require'):
        assert checked(url, 'db') == url
