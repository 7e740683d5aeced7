# SPDX-License-Identifier: Apache-2.0
"""The search of the functional tests for secrets in logs."""

from tests.lab.known_secrets import a_secret, leaks, lines_showing_secret, registered


def test_a_log_line_that_shows_a_secret_is_named(tmp_path):
    """The search names file and line, without the secret. The files with the
    configuration may have the secret."""
    ours = a_secret()
    given = registered('given-by-hand')
    (tmp_path / 'nova.conf').write_text(f'password = {ours}\n')
    (tmp_path / 'quiet.log').write_text('all is well\n')
    (tmp_path / 'cloud').mkdir()
    log = tmp_path / 'cloud' / 'daemon.log'
    log.write_text(f'starting\nrabbit://nova:{ours}@host/\n\n{given}\n')
    assert list(leaks(tmp_path)) == [f'{log}:2', f'{log}:4']


def test_only_a_word_in_the_place_of_a_password_is_reported():
    """A word may appear anywhere, except in the place of a password."""
    others = (
        'nova.filters nova /etc/nova exchange = nova nova-scheduler passwords of nova'
    )
    shown = [
        'mysql://nova:nova@h/nova',
        "refused 'nova'",
        'password = nova',
        '"token": "nova"',
    ]
    assert lines_showing_secret('\n'.join([others, *shown]), 'nova') == shown
