# SPDX-License-Identifier: Apache-2.0
import os
import shutil
import sqlite3
import tempfile
import zlib
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from novasched.cmd import novaschedctl
from novasched.conf.settings import Settings
from tests.lab.builders import a_flavor, a_host, a_request, a_uuid
from tests.lab.decision_records import RecordedScheduler, write_records

HOSTS = []
for i in range(30):
    HOSTS.append(a_host(f'small-{i}', ram=512 + i))
for i in range(3):
    node = f'off-{i}.example.org'
    HOSTS.append(a_host(f'off-{i}', disabled=True, why='rack 4', nodename=node))
for i in range(2):
    node = f'node-{i}'
    HOSTS.append(a_host('metal', nodename=node, uuid=a_uuid(node), ram=4096))
SETTINGS = Settings(enabled_filters=('ComputeFilter', 'RamFilter'))
NAMES = {'placed': 512, 'refused': 9000}


@pytest.fixture
def path(tmp_path):
    flavors = {name: a_flavor(name='m1', memory_mb=ram) for name, ram in NAMES.items()}
    requests = []
    for name, flavor in flavors.items():
        requests.append(
            a_request(instance_uuids=(name,), request_id=f'req-{name}', flavor=flavor)
        )
    return write_records(
        tmp_path / 'decisions', RecordedScheduler(HOSTS, settings=SETTINGS), requests
    )


def explain(capsys, path, *arguments):
    status = novaschedctl.main(['explain', '--file', path, *arguments])
    shown = capsys.readouterr()
    return status, shown.out or shown.err


REFUSED = '0 of 35 hosts: 32 lack free memory, 3 disabled'
TABLE = """\
+---------------+----+-----+--------------------------------------------------------------+
| filter        | in | out | why not                                                      |
+---------------+----+-----+--------------------------------------------------------------+
| ComputeFilter | 35 |  32 | 3: disabled, reason: rack 4                                  |
| RamFilter     | 32 |   0 | 32: 512 to 4096 MiB of memory before overcommit, 9000 wanted |
+---------------+----+-----+--------------------------------------------------------------+
"""


def test_the_report_of_a_refusal_fits_on_a_screen(capsys, path):
    """The report fits on a screen, with the headline first. A server or a request finds
    the decision."""
    status, text = explain(capsys, path, 'refused')
    assert status == 0
    assert text.splitlines()[0] == REFUSED
    assert TABLE in text
    assert '1 x m1 (1 vCPUs, 9000 MiB, 1 GiB)' in text
    assert len(text.splitlines()) <= 24
    for same in (['req-refused'], ['--last']):
        assert explain(capsys, path, *same) == (0, text)


@pytest.mark.parametrize(
    ('server', 'host', 'why'),
    [
        (
            'refused',
            'small-7',
            'small-7: RamFilter: 519 MiB of memory before overcommit, 9000 wanted',
        ),
        ('refused', 'off-1', 'off-1: ComputeFilter: disabled, reason: rack 4'),
        (
            'refused',
            'off-1.example.org',
            'off-1.example.org: ComputeFilter: disabled, reason: rack 4',
        ),
        (
            'refused',
            'nobody',
            'nobody: Placement did not offer it, or there is no such host',
        ),
        ('placed', 'small-29', 'small-29: fit, number 3 of 32 by weight'),
        (
            'placed',
            'metal',
            'metal: chosen for 1 of 1 servers\nmetal: fit, number 1 of 32 by weight (node-0)\nmetal: fit, number 2 of 32 by weight (node-1)',
        ),
        (
            'refused',
            'node-1',
            'node-1: RamFilter: 4096 MiB of memory before overcommit, 9000 wanted (node-1)',
        ),
    ],
)
def test_the_reason_against_a_host_is_given_in_full(capsys, path, server, host, why):
    """The reason is given in full, by the name of a host or of a node."""
    status, text = explain(capsys, path, server, '--host', host)
    assert (status, text.partition('\n')[2].strip()) == (0, why)


@pytest.mark.parametrize(
    ('arguments', 'said'),
    [
        (['nobody'], 'has no decision on nobody; the newest are kept'),
        ([a_uuid('nobody')], f'has no decision on {a_uuid("nobody")};'),
        ([''], "has no decision on '';"),
        (['two\nlines'], "has no decision on 'two lines';"),
        (["'; drop table decisions; --"], 'has no decision on '),
        (['%'], 'has no decision on %;'),
        (['half-\udcff'], "has no decision on 'half-?'"),
        (['x' * 100_000], "has no decision on 'xxx"),
        (
            ['--last', '--file', '/nowhere'],
            '/nowhere: there is no such file; no decision has been',
        ),
        (['--last', '--file', '/' + 'x' * 1000], 'cannot be read: File name too long'),
        (['--last', '--file', __file__], 'damaged, or no file of decision records'),
    ],
)
def test_a_missing_decision_or_file_is_reported_on_a_single_line(
    capsys, path, arguments, said
):
    """One line gives the reason, and the exit status is not 0."""
    status, text = explain(capsys, path, *arguments)
    assert status == 1
    assert said in text
    assert text.count('\n') == 1
    assert len(text) < 1500
    assert explain(capsys, path, '--last')[0] == 0


@pytest.mark.parametrize(
    'host', ['', 'two\nlines', 'half-\udcff', 'x' * 100_000, '\x1b[2J']
)
def test_an_unknown_host_is_explained_like_a_known_host(capsys, path, host):
    """An unknown host is handled like a known host, on one line."""
    status, text = explain(capsys, path, '--last', '--host', host)
    assert (status, text.splitlines()[0]) == (0, REFUSED)
    assert not host or 'Placement did not offer it, or there is no such host' in text
    assert '\x1b' not in text


def cut(path, share):
    whole = path.read_bytes()
    path.write_bytes(whole[: int(len(whole) * share)])


def changed(path, statement):
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(statement)


OTHER_RELEASE = 'of another release: of form {}, and this release reads form 2'
FILES = {
    'cut 0.2': (partial(cut, share=0.2), 'damaged'),
    'cut 0.5': (partial(cut, share=0.5), 'damaged'),
    'cut 0.7': (partial(cut, share=0.7), 'damaged'),
    'cut at once': (partial(cut, share=0.001), OTHER_RELEASE.format(0)),
    'empty': (
        partial(cut, share=0),
        'the file is empty; no decision has been recorded there',
    ),
    'newer': (
        partial(changed, statement='pragma user_version = 99'),
        OTHER_RELEASE.format(99),
    ),
    'foreign': (
        partial(changed, statement='pragma user_version = 0'),
        OTHER_RELEASE.format(0),
    ),
    'no table': (
        partial(changed, statement='drop table decisions'),
        'cannot be read: no such table',
    ),
    'a text': (lambda path: path.write_text('no database' * 999), 'damaged'),
    'a folder': (lambda path: path.unlink() or path.mkdir(), 'this is no file'),
    'a pipe': (lambda path: path.unlink() or os.mkfifo(path), 'this is no file'),
    'a link': (
        lambda path: path.unlink() or path.symlink_to(path),
        'this is a symbolic link',
    ),
}


@pytest.mark.parametrize('name', FILES)
def test_an_unreadable_file_is_reported_on_a_single_line(capsys, path, name):
    """One line says what is wrong with the file, and the exit status is 1."""
    damage, said = FILES[name]
    damage(Path(path))
    status, text = explain(capsys, path, '--last')
    assert (status, text.count('\n')) == (1, 1)
    assert text.startswith(f'novaschedctl: {path}: ')
    assert said in text


@pytest.mark.parametrize(
    'record', [b'x', b'', zlib.compress(b'{"id": "1"}'), zlib.compress(9999 * b'[')]
)
def test_a_damaged_record_is_skipped_and_counted(capsys, path, record):
    """The other decisions are explained, with a line about the damage. The newest
    decision that can be read is the last."""
    with closing(sqlite3.connect(path)) as base, base:
        base.execute(
            'update decisions set record = ? where request_id = ?',
            (record, 'req-refused'),
        )
    damage = 'a damaged decision record was skipped'

    status, text = explain(capsys, path, 'refused')
    assert status == 1
    assert text == (
        f'novaschedctl explain: {path} has no decision on refused; {damage}\n'
    )
    assert explain(capsys, path, 'placed')[0] == 0

    assert novaschedctl.main(['explain', '--file', path, '--last']) == 0
    shown = capsys.readouterr()
    assert shown.out.startswith('metal: ')
    assert shown.err == f'novaschedctl explain: {path}: {damage}\n'


@pytest.mark.parametrize('shut', ['file', 'folder'])
def test_missing_permissions_of_a_file_are_reported(capsys, path, shut):
    """Missing permissions are reported, although root runs the tests."""
    explain(capsys, path, '--last')  # which imports what nobody may not
    us = os.geteuid()
    nobody = 65534
    with tempfile.TemporaryDirectory() as top:
        folder = Path(top, 'folder')
        folder.mkdir()
        file = Path(shutil.copy(path, folder))
        Path(top).chmod(0o755)
        (file if shut == 'file' else folder).chmod(0)
        os.seteuid(us or nobody)
        status, text = explain(capsys, str(file), '--last')
        os.seteuid(us)
    assert (status, text.count('\n')) == (1, 1)
    assert text.startswith(f'novaschedctl: {file}: cannot be read: ')


@pytest.mark.parametrize(
    ('lines', 'status', 'said'),
    [
        ('', 1, '/var/lib/nova/novasched/decisions.sqlite: there is no such file'),
        (
            'state_path = /nowhere',
            1,
            '/nowhere/novasched/decisions.sqlite: there is no such file',
        ),
        (
            'state_path = /nowhere\n[novasched]\ndecisions_file =',
            2,
            '[novasched] decisions_file is empty in nova.conf',
        ),
        (
            'state_path = /nowhere\n[novasched]\ndecisions_file = $state_path/x',
            1,
            '/nowhere/x: there',
        ),
        (
            '[novasched]\ndecisions_file = /nowhere/x',
            1,
            '/nowhere/x: there is no such file',
        ),
    ],
)
def test_the_file_is_found_by_options_of_nova_conf(
    capsys, tmp_path, lines, status, said
):
    """The file is found by its option, or below ``[DEFAULT] state_path``."""
    conf = tmp_path / 'nova.conf'
    conf.write_text(f'[DEFAULT]\n{lines}\n')
    assert (
        novaschedctl.main(['explain', '--config-file', str(conf), '--last']) == status
    )
    assert said in capsys.readouterr().err
