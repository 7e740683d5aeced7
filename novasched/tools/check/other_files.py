# SPDX-License-Identifier: Apache-2.0
"""Files with an effect on scheduling, unread by novasched: nova-scheduler's own files
beside nova.conf, and placement.conf."""

from collections.abc import Iterator, Sequence
from pathlib import Path

from oslo_config import cfg
from oslo_utils.strutils import bool_from_string

from novasched.conf.loading import Written, merged, within
from novasched.conf.settings import Settings
from novasched.tools.check.findings import Finding, Level
from novasched.tools.check.options import (
    Known,
    NoFile,
    UnreadableFile,
    names_of,
    read_file,
)

NOVA_SCHEDULER_FILES: Sequence[tuple[str, str]] = (
    ('nova-scheduler.conf', '--config-file'),
    ('nova-scheduler.conf.d', '--config-dir'),
)
"""Files and folders that oslo.config reads for nova-scheduler by its program name,
unless the argument beside is given."""

PLACEMENT_PROJECT = 'placement'
CONFLICT_RETRIES = 'allocation_conflict_retry_count'
MAX_CANDIDATES = 'max_allocation_candidates'
STRATEGY = 'allocation_candidates_generation_strategy'
RANDOMIZE = 'randomize_allocation_candidates'
OPTIMIZE = 'optimize_for_wide_provider_trees'
"""Options of Placement: the last in ``[workarounds]``, all others in
``[placement]``."""

SERIAL_DATABASES = ('postgresql', 'sqlite')
"""Databases of Placement in which a retried claim sees the claims that were committed
meanwhile."""


def check_nova_scheduler_files(
    files: Sequence[str], written: Written, known: Known
) -> Iterator[Finding]:
    """Compare nova-scheduler's own files with the files of novasched.

    :param files: the files of novasched.
    :param written: the options in these files.
    """
    paths = [Path(name).expanduser() for name in files]
    read = {path.resolve() for path in paths}
    for folder in sorted({path.parent for path in paths}):
        for name, argument in NOVA_SCHEDULER_FILES:
            path = folder / name
            inside = [path]
            if path.is_dir():
                inside = [Path(file) for file in within([str(path)])]

            unread = []
            for file in inside:
                if file.is_file() and file.resolve() not in read:
                    unread.append(str(file))
            if unread:
                yield _unread_files(str(path), unread, argument, written, known)


def _unread_files(
    path: str, unread: Sequence[str], argument: str, written: Written, known: Known
) -> Finding:
    start = (
        f'nova-scheduler reads it unless it is started with {argument}, novasched'
        ' does not'
    )
    try:
        theirs = merged(map(read_file, unread))
    except (NoFile, UnreadableFile) as error:
        text = f'{start}, and it cannot be parsed: {error}'
        return Finding(Level.WARNING, path, text)

    lost = [*_lost_options(theirs, written, known)]
    if lost:
        text = (
            f'{start}: {", ".join(lost)} would be lost; copy the options that you need'
            ' into nova.conf'
        )
        return Finding(Level.WARNING, path, text)
    text = f'{start}; the files of novasched have the same options of a scheduler'
    return Finding(Level.OK, path, text)


def _lost_options(theirs: Written, ours: Written, known: Known) -> Iterator[str]:
    """The options in files of nova-scheduler with no value, or another value, in the
    files of novasched."""
    for group, options in known.items():
        for option in options.values():
            names = names_of(group, option)
            their_values = _values(theirs, names)
            our_values = _values(ours, names)
            if not isinstance(option, cfg.MultiOpt):
                # The last value of any other option counts.
                their_values = their_values[-1:]
                our_values = our_values[-1:]
            if not set(their_values) <= set(our_values):
                yield f'[{group}] {option.dest}'


def _values(written: Written, names: Sequence[tuple[str, str]]) -> Sequence[str]:
    """The values of an option, under its newest written name."""
    for group, name in names:
        values = written.get(group, {}).get(name)
        if values:
            return values
    return ()


def check_placement_conf(named: Sequence[str], settings: Settings) -> Iterator[Finding]:
    """Check the options with which Placement offers too few candidates, or refuses
    claims of candidates.

    :param named: the files named by the operator; if empty, Placement's default files
        on this machine.
    :raises NoFile: a named file cannot be opened.
    """
    paths = list(named)
    if not paths:
        folders = cfg.find_config_dirs(PLACEMENT_PROJECT, '')
        paths = [*cfg.find_config_files(PLACEMENT_PROJECT, ''), *within(folders)]

    why = 'there is none on this machine'
    try:
        written = merged(map(read_file, paths))
    except (NoFile, UnreadableFile) as error:
        if named and isinstance(error, NoFile):
            raise
        paths = []
        why = str(error)
    if not paths:
        text = (
            f'not checked: {why}. Name a copy with --placement-config, or check on each'
            f' machine of Placement that [placement] {CONFLICT_RETRIES} is 1 on MariaDB'
            f' and MySQL, {MAX_CANDIDATES} is -1, and [workarounds] {OPTIMIZE} is false'
        )
        yield Finding(Level.NOTE, 'placement.conf', text)
        return

    findings = [*_claim_options(written), *_candidate_options(written, settings)]
    if not findings:
        findings.append(Finding(Level.OK, ', '.join(paths), 'its options do no harm'))
    yield from findings


def _claim_options(written: Written) -> Iterator[Finding]:
    subject = f'[placement] {CONFLICT_RETRIES}'
    tries = _number(written, CONFLICT_RETRIES, 10)
    url = _last(written, 'placement_database', 'connection', '')
    remedy = 'set 1 in placement.conf and restart Placement'
    if tries == 0:
        text = f'with 0 Placement refuses every claim; {remedy}'
        yield Finding(Level.ERROR, subject, text)
    elif tries != 1 and not url.startswith(SERIAL_DATABASES):
        text = (
            f'Placement tries a claim up to {tries} times within one snapshot of'
            ' MariaDB or MySQL. The retries do not see the conflicting claim, and'
            f' Placement may allocate more than the capacity; {remedy}'
        )
        yield Finding(Level.WARNING, subject, text)


def _candidate_options(written: Written, settings: Settings) -> Iterator[Finding]:
    maximum = _number(written, MAX_CANDIDATES, -1)
    strategy = _last(written, 'placement', STRATEGY, 'depth-first')
    limit = settings.max_placement_results
    why = ''
    if maximum >= 0 and strategy == 'depth-first':
        why = f'all from the first hosts, since {STRATEGY} is depth-first'
    elif 0 <= maximum < limit:
        why = f'fewer than [scheduler] max_placement_results ({limit})'
    if why:
        text = (
            f'Placement stops at {maximum} candidates, {why}: a request may fail'
            ' though other hosts have room. Set -1 in placement.conf, or at least'
            f' {limit} and breadth-first, and restart Placement'
        )
        yield Finding(Level.WARNING, f'[placement] {MAX_CANDIDATES}', text)

    if not bool_from_string(_last(written, 'placement', RANDOMIZE, 'false')):
        text = (
            'false: if more hosts have room than [scheduler] max_placement_results'
            f' ({limit}), Placement always offers the same hosts. In a larger cloud,'
            ' set true in placement.conf, or raise the limit in nova.conf'
        )
        yield Finding(Level.NOTE, f'[placement] {RANDOMIZE}', text)

    if bool_from_string(_last(written, 'workarounds', OPTIMIZE, 'false')):
        text = (
            'Placement ignores usage when it combines the groups of a request, and'
            ' offers candidates that it refuses when they are claimed: requests for'
            ' several devices are tried again, or fail though there is room. Set false'
            ' in placement.conf unless such requests take too long without it'
        )
        yield Finding(Level.WARNING, f'[workarounds] {OPTIMIZE}', text)


def _last(written: Written, group: str, name: str, default: str) -> str:
    values = written.get(group, {}).get(name) or [default]
    return values[-1].strip()


def _number(written: Written, name: str, default: int) -> int:
    try:
        return int(_last(written, 'placement', name, str(default)))
    except ValueError:  # Placement does not start with such a value
        return default
