# SPDX-License-Identifier: Apache-2.0
"""Files that novasched does not read and that matter all the same: nova-scheduler's
own, beside nova.conf, and placement.conf, on whose options candidates and claims
depend."""

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

OF_NOVA_SCHEDULER: Sequence[tuple[str, str]] = (
    ('nova-scheduler.conf', '--config-file'),
    ('nova-scheduler.conf.d', '--config-dir'),
)
"""What oslo.config reads for a program of that name, unless this argument is given."""
PLACEMENT_PROJECT = 'placement'
CONFLICT_RETRIES = 'allocation_conflict_retry_count'
MAX_CANDIDATES = 'max_allocation_candidates'
STRATEGY = 'allocation_candidates_generation_strategy'
RANDOMIZE = 'randomize_allocation_candidates'
OPTIMIZE = 'optimize_for_wide_provider_trees'
"""Placement's options, all but the last in ``[placement]``, that one in
``[workarounds]``."""
SERIAL_DATABASES = 'postgresql', 'sqlite'
"""Placement's databases in which a claim that is tried again sees what was committed
meanwhile."""


def check_nova_scheduler_files(
    files: Sequence[str], written: Written, known: Known
) -> Iterator[Finding]:
    """Compare nova-scheduler's own files with what is written in those that the daemon
    reads."""
    paths = [Path(each).expanduser() for each in files]
    read = {each.resolve() for each in paths}
    for place in sorted({each.parent for each in paths}):
        for name, argument in OF_NOVA_SCHEDULER:
            path = place / name
            inside = [*map(Path, within([str(path)]))] if path.is_dir() else [path]
            unread = [
                str(each)
                for each in inside
                if each.is_file() and each.resolve() not in read
            ]
            if unread:
                yield _of_unread(str(path), unread, argument, written, known)


def _of_unread(
    path: str, unread: Sequence[str], argument: str, written: Written, known: Known
) -> Finding:
    start = (
        f'nova-scheduler reads it unless it is started with {argument}, novasched'
        ' does not'
    )
    try:
        lost = [*_lost(merged(map(read_file, unread)), written, known)]
    except (NoFile, UnreadableFile) as error:
        text = f'{start}, and what it says cannot be read: {error}'
        return Finding(Level.WARNING, path, text)
    if not lost:
        text = (
            f'{start}; whatever a scheduler reads in it is the same in the files read'
            ' here'
        )
        return Finding(Level.OK, path, text)
    text = (
        f'{start}: {", ".join(lost)} would be lost; copy into nova.conf what is to hold'
        ' here'
    )
    return Finding(Level.WARNING, path, text)


def _lost(theirs: Written, ours: Written, known: Known) -> Iterator[str]:
    """The options that the daemon would read, and does not have with the same value."""
    for group, options in known.items():
        for option in options.values():
            values, have = (
                _values(each, names_of(group, option)) for each in (theirs, ours)
            )
            if not isinstance(option, cfg.MultiOpt):  # of which all values count
                values = values[-1:]
                have = have[-1:]
            if not set(values) <= set(have):
                yield f'[{group}] {option.dest}'


def _values(written: Written, names: Sequence[tuple[str, str]]) -> Sequence[str]:
    """The values of an option, under the newest of its names that is there."""
    several = (written.get(group, {}).get(name, ()) for group, name in names)
    return next(filter(None, several), ())


def check_placement_conf(named: Sequence[str], settings: Settings) -> Iterator[Finding]:
    """Look at the options of Placement by which it offers too little or what it then
    refuses.

    :param named: the files that the operator names; else those that Placement would
        find here.
    :raises NoFile: a file that is named cannot be opened.
    """
    paths = named or [
        *cfg.find_config_files(PLACEMENT_PROJECT, ''),
        *within(cfg.find_config_dirs(PLACEMENT_PROJECT, '')),
    ]
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
            f'not looked at: {why}. Name a copy with --placement-config, or see on each'
            f' machine of Placement that [placement] {CONFLICT_RETRIES} is 1 on MariaDB'
            f' and MySQL, {MAX_CANDIDATES} is -1, and [workarounds] {OPTIMIZE} is false'
        )
        yield Finding(Level.NOTE, 'placement.conf', text)
        return
    found = [*_of_claims(written), *_of_candidates(written, settings)]
    yield from found or [Finding(Level.OK, ', '.join(paths), 'its options do no harm')]


def _of_claims(written: Written) -> Iterator[Finding]:
    subject = f'[placement] {CONFLICT_RETRIES}'
    tries = _number(written, CONFLICT_RETRIES, 10)
    serial = _last(written, 'placement_database', 'connection', '').startswith(
        SERIAL_DATABASES
    )
    remedy = 'set 1 in placement.conf and restart Placement'
    if tries == 0:
        yield Finding(
            Level.ERROR, subject, f'with 0 Placement refuses every claim; {remedy}'
        )
    elif tries != 1 and not serial:
        text = (
            f'Placement tries a claim up to {tries} times within one snapshot of'
            ' MariaDB or MySQL, in which it does not see with what it collided, and'
            f' may give away more than there is; {remedy}'
        )
        yield Finding(Level.WARNING, subject, text)


def _of_candidates(written: Written, settings: Settings) -> Iterator[Finding]:
    most = _number(written, MAX_CANDIDATES, -1)
    deep = _last(written, 'placement', STRATEGY, 'depth-first') == 'depth-first'
    limit = settings.max_placement_results
    why = ''
    if most >= 0 and deep:
        why = f'the hosts that it comes to first, since {STRATEGY} is depth-first'
    elif 0 <= most < limit:
        why = f'fewer hosts than [scheduler] max_placement_results, which is {limit}'
    if why:
        text = (
            f'Placement stops at {most} candidates, those of {why}: a request may fail'
            ' though other hosts have room. Set -1 in placement.conf, or at least'
            f' {limit} and breadth-first, and restart Placement'
        )
        yield Finding(Level.WARNING, f'[placement] {MAX_CANDIDATES}', text)
    if not bool_from_string(_last(written, 'placement', RANDOMIZE, 'false')):
        text = (
            'false: where more hosts have room than [scheduler] max_placement_results'
            f' ({limit}), Placement offers the same ones each time. In a cloud of more'
            ' hosts set true in placement.conf, or raise the limit in nova.conf'
        )
        yield Finding(Level.NOTE, f'[placement] {RANDOMIZE}', text)
    if bool_from_string(_last(written, 'workarounds', OPTIMIZE, 'false')):
        text = (
            'Placement forgets what is used when it combines the groups of a request,'
            ' and offers candidates that it refuses when they are claimed: requests for'
            ' several devices are tried again, or fail though there is room. Set false'
            ' in placement.conf unless such requests take too long without it'
        )
        yield Finding(Level.WARNING, f'[workarounds] {OPTIMIZE}', text)


def _last(written: Written, group: str, name: str, default: str) -> str:
    return (written.get(group, {}).get(name) or [default])[-1].strip()


def _number(written: Written, name: str, default: int) -> int:
    try:
        return int(_last(written, 'placement', name, str(default)))
    except ValueError:  # with which Placement does not start
        return default
