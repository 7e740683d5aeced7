# SPDX-License-Identifier: Apache-2.0
"""The functional tests see a secret of theirs in a log."""

from tests.lab.known_secrets import a_secret, leaks, lines_showing_secret, registered


def test_who_shows_a_secret_is_named(tmp_path):
    """By file and line, without the secret; the files that hold it may."""
    ours = a_secret()
    given = registered('given-by-hand')
    (tmp_path / 'nova.conf').write_text(f'password = {ours}\n')
    (tmp_path / 'quiet.log').write_text('all is well\n')
    (tmp_path / 'cloud').mkdir()
    log = tmp_path / 'cloud' / 'daemon.log'
    log.write_text(f'starting\nrabbit://nova:{ours}@host/\n\n{given}\n')
    assert list(leaks(tmp_path)) == [f'{log}:2', f'{log}:4']


def test_a_word_that_is_shown_as_a_password():
    """It may stand anywhere else."""
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
