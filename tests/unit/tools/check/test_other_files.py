# SPDX-License-Identifier: Apache-2.0
"""Findings on files that novasched does not read: nova-scheduler's and Placement's."""

import pytest

from novasched.conf.settings import Settings
from novasched.tools.check import options
from novasched.tools.check.other_files import (
    check_nova_scheduler_files,
    check_placement_conf,
)

LOST = ' would be lost; copy the options that you need into nova.conf'
SECRET = 'a-word-that-nobody-may-read'


@pytest.fixture
def beside(tmp_path):
    """The findings on files beside a nova.conf: [(level, name of the file, text)]."""

    def _beside(text, files, further=()):
        nova_conf = tmp_path / 'nova.conf'
        nova_conf.write_text(text)
        for name, content in files.items():
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text(content)
        named = [str(nova_conf), *(str(tmp_path / name) for name in further)]
        _, written = options.load(named, [])
        known = options.known_options(written)
        found = check_nova_scheduler_files(
            options.files_read(named, []), written, known
        )
        rows = []
        for finding in found:
            name = finding.subject.rpartition('/')[2]
            rows.append((str(finding.level), name, finding.text))
        return rows

    return _beside


CONF = 'nova-scheduler.conf'
FOLDER = 'nova-scheduler.conf.d'
FILTERS = '[filter_scheduler]\navailable_filters = {}\n'


@pytest.mark.parametrize(
    ('ours', 'theirs', 'lost'),
    [
        ('', '[scheduler]\nmax_attempts = 5', '[scheduler] max_attempts'),
        ('[scheduler]\nmax_attempts = 5', '[scheduler]\nmax-attempts = 5', ''),
        (
            '[scheduler]\nmax_attempts = 3',
            '[scheduler]\nmax_attempts = 5',
            '[scheduler] max_attempts',
        ),
        ('[scheduler]\nmax_attempts = 5', '[DEFAULT]\nscheduler_max_attempts = 5', ''),
        (
            '',
            '[scheduler]\nworkers = 3\n[database]\nconnection = a://b:c@d',
            '[scheduler] workers, [database] connection',
        ),
        (FILTERS.format('x\navailable_filters = y'), FILTERS.format('x'), ''),
        (
            FILTERS.format('x'),
            FILTERS.format('y'),
            '[filter_scheduler] available_filters',
        ),
        ('', '[libvirt]\nvirt_type = kvm', ''),
        ('', f'[scheduler]\n{SECRET} = {SECRET}', ''),
    ],
)
def test_nova_scheduler_options_that_novasched_misses_are_named(
    beside, ours, theirs, lost
):
    """The finding names options of a scheduler with a different value in the files of
    novasched."""
    for path, name, argument in (
        (CONF, CONF, '--config-file'),
        (f'{FOLDER}/a.conf', FOLDER, '--config-dir'),
    ):
        *_, (level, subject, text) = beside(ours, {path: theirs})
        assert (level, subject) == ('warning' if lost else 'ok', name)
        assert text.startswith(
            f'nova-scheduler reads it unless it is started with {argument}, '
        )
        assert not lost or text.endswith(f'novasched does not: {lost}{LOST}')
        assert SECRET not in text


def test_files_that_novasched_reads_have_no_finding(beside):
    """Files of novasched, and missing files, have no finding."""
    theirs = {CONF: '[scheduler]\nmax_attempts = 5'}
    assert beside('', {}) == []
    assert beside('', theirs, further=theirs) == []
    assert beside('', {f'{FOLDER}/a.txt': 'x'}, further=theirs) == []


def test_the_folder_of_a_link_counts_instead_of_the_target_folder(tmp_path):
    """The folder of a link counts, not the folder of the link's target."""
    place = tmp_path / 'etc'
    place.mkdir()
    (place / 'nova.conf').symlink_to(tmp_path / 'nova.conf')
    (place / CONF).symlink_to(tmp_path / 'read.conf')
    (tmp_path / CONF).touch()
    (tmp_path / 'read.conf').touch()
    linked = [str(place / 'nova.conf')]

    [finding] = check_nova_scheduler_files(linked, {}, {})
    assert finding.subject == str(place / CONF)

    read = [*linked, str(place / CONF)]
    assert [*check_nova_scheduler_files(read, {}, {})] == []


def test_an_unreadable_file_is_a_warning_without_the_broken_line(beside):
    """The finding does not quote the broken line."""
    [(level, _, text)] = beside('', {CONF: SECRET})
    assert level == 'warning'
    assert ', line 1: ' in text
    assert SECRET not in text


RETRIES = '[placement] allocation_conflict_retry_count'
MOST = '[placement] max_allocation_candidates'
RANDOM = '[placement] randomize_allocation_candidates'
WIDE = '[workarounds] optimize_for_wide_provider_trees'
ON = '[placement]\nrandomize_allocation_candidates = true\n'
ONCE = f'{ON}allocation_conflict_retry_count = 1\n'
URL = '[placement_database]\nconnection = {}://placement:x@db/placement\n'


@pytest.mark.parametrize(
    ('text', 'found'),
    [
        (ONCE, ''),
        (ON, f'warning {RETRIES}'),
        (f'{ON}allocation_conflict_retry_count = 10', f'warning {RETRIES}'),
        (f'{ON}allocation_conflict_retry_count = 0', f'error {RETRIES}'),
        (f'{ON}allocation_conflict_retry_count = some', f'warning {RETRIES}'),
        (ON + URL.format('mysql+pymysql'), f'warning {RETRIES}'),
        (ON + URL.format('postgresql'), ''),
        ('[placement]\nallocation_conflict_retry_count = 1', f'note {RANDOM}'),
        (f'{ONCE}max_allocation_candidates = -1', ''),
        (f'{ONCE}max_allocation_candidates = 100000', f'warning {MOST}'),
        (
            f'{ONCE}max_allocation_candidates = 100000\nallocation_candidates_generation_strategy = breadth-first',
            '',
        ),
        (
            f'{ONCE}max_allocation_candidates = 999\nallocation_candidates_generation_strategy = breadth-first',
            f'warning {MOST}',
        ),
        (f'{ONCE}allocation_candidates_generation_strategy = breadth-first', ''),
        (
            f'{ONCE}[workarounds]\noptimize_for_wide_provider_trees = True',
            f'warning {WIDE}',
        ),
        (f'{ONCE}[workarounds]\noptimize_for_wide_provider_trees = no', ''),
    ],
)
def test_unsuitable_options_of_placement_are_found(tmp_path, text, found):
    """Options with too few or unusable candidates are found; the last value counts."""
    path = tmp_path / 'placement.conf'
    path.write_text(text)
    findings = check_placement_conf([str(path)], Settings())
    lines = [f'{each.level} {each.subject}' for each in findings]
    assert lines == ([found] if found else [f'ok {path}'])


def test_without_a_readable_placement_conf_the_options_are_named(tmp_path, monkeypatch):
    """Without a readable placement.conf, the finding names the options to check on
    Placement's machine."""
    monkeypatch.setenv('HOME', str(tmp_path))
    places = 'novasched.tools.check.other_files.cfg.find_config_files'
    broken = tmp_path / 'placement.conf'
    broken.write_text(SECRET)
    for path, why in ((None, 'there is none on this machine'), (broken, 'line 1: ')):
        monkeypatch.setattr(places, lambda *_, path=path: [str(path)] if path else [])
        [found] = check_placement_conf([], Settings())
        assert (str(found.level), found.subject) == ('note', 'placement.conf')
        assert why in found.text
        assert 'allocation_conflict_retry_count is 1' in found.text
        assert SECRET not in found.text


def test_a_missing_placement_conf_on_the_command_line_is_an_error(tmp_path):
    """A named file that does not exist is an error of the command line."""
    with pytest.raises(options.NoFile):
        list(check_placement_conf([str(tmp_path / 'none')], Settings()))
