# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.scheduler.model.changes import MAX_IDS, MAX_STEPS, UNVERSIONED

MANY_IDS = [str(number) for number in range(MAX_IDS + 1)]


def a_line(*steps):
    """The logs of the versions of a view; the first is the log before all steps."""
    logs = [UNVERSIONED.with_step(['first'])]
    for ids in steps:
        logs.append(logs[-1].with_step(ids))
    return logs


@pytest.mark.parametrize(
    ('version', 'changed'),
    [(0, {'a', 'b', 'c'}), (1, {'b', 'c'}), (2, {'b', 'c'}), (3, set())],
)
def test_a_log_has_all_changes_since_a_version(version, changed):
    logs = a_line(['a'], ['b'], ['b', 'c'])
    assert logs[-1].since(logs[version].version) == changed


def test_changes_since_foreign_or_later_versions_are_unknown():
    """A log knows nothing of views without versions, of later versions, of other views
    and of branches."""
    first, second = a_line(['a'])
    branch = first.with_step(['b'])
    assert first.since(UNVERSIONED.version) is None
    assert UNVERSIONED.since(UNVERSIONED.version) is None
    assert first.since(second.version) is None
    assert second.since(a_line()[0].version) is None
    assert second.since(branch.version) is None
    assert branch.since(second.version) is None
    assert branch.since(first.version) == {'b'}


@pytest.mark.parametrize(
    ('steps', 'kept'),
    [
        ([['a']] * MAX_STEPS, MAX_STEPS),
        ([['a']] * (MAX_STEPS + 5), MAX_STEPS),
        ([MANY_IDS[: MAX_IDS // 2]] * 2, 2),
        ([MANY_IDS[:MAX_IDS]] * 2, 1),
        ([MANY_IDS], 0),
    ],
)
def test_a_full_log_drops_the_oldest_steps(steps, kept):
    """The oldest steps are dropped: what changed before them is unknown."""
    logs = a_line(*steps)
    last = logs[-1]
    oldest = len(logs) - 1 - kept
    assert len(last.steps) == kept
    assert last.since(logs[oldest].version) is not None
    if oldest:
        assert last.since(logs[oldest - 1].version) is None
