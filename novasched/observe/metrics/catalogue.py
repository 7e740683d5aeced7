# SPDX-License-Identifier: Apache-2.0
"""All metrics."""

from __future__ import annotations

from dataclasses import dataclass

COUNTER, GAUGE, HISTOGRAM = 'counter', 'gauge', 'histogram'
SUM, MAX = 'livesum', 'livemax'
"""Ways to make one gauge of those of several workers; workers that have ended count in neither."""

SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
)  # fmt: skip
"""The upper bounds of histograms' buckets."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; ``mode`` is SUM or MAX for a gauge."""

    kind: str
    name: str
    help: str
    labels: tuple[str, ...] = ()
    mode: str = ''


REQUESTS = Metric(
    COUNTER, 'novasched_requests_total',
    'Requests for hosts: placed, refused since no host is valid, or failed for a reason that '
    'an operator must mend.', ('result',),
)  # fmt: skip
INSTANCES = Metric(COUNTER, 'novasched_instances_placed_total', 'Instances that got a host.')
REQUEST_SECONDS = Metric(
    HISTOGRAM, 'novasched_request_duration_seconds',
    'Seconds from when a request was begun until it was decided.',
)  # fmt: skip
STEP_SECONDS = Metric(
    HISTOGRAM, 'novasched_step_duration_seconds',
    'Seconds of a request in a step of the decision.', ('step',),
)  # fmt: skip
HOSTS_IN = Metric(
    COUNTER, 'novasched_filter_hosts_in_total', 'Hosts that came to a filter.', ('filter',)
)
HOSTS_OUT = Metric(
    COUNTER, 'novasched_filter_hosts_out_total', 'Hosts that passed a filter.', ('filter',)
)
FILTER_SECONDS = Metric(
    COUNTER, 'novasched_filter_seconds_total', 'Seconds spent in a filter.', ('filter',)
)
WEIGHER_SECONDS = Metric(
    COUNTER, 'novasched_weigher_seconds_total', 'Seconds spent in a weigher.', ('weigher',)
)
CLAIMS_REFUSED = Metric(COUNTER, 'novasched_claims_refused_total', 'Claims that Placement refused.')
MESSAGE_WAIT = Metric(
    HISTOGRAM, 'novasched_message_wait_seconds',
    'Seconds from when a message came from the broker until it was begun.',
)  # fmt: skip
MESSAGES_WAITING = Metric(
    GAUGE, 'novasched_messages_waiting', 'Messages that wait for a thread.', mode=SUM
)
MESSAGES_IN_PROGRESS = Metric(
    GAUGE, 'novasched_messages_in_progress', 'Messages that have a thread.', mode=SUM
)
MESSAGES_DROPPED = Metric(
    COUNTER, 'novasched_messages_dropped_total',
    'Messages that were not begun, since the caller no longer waited for the answer.',
)  # fmt: skip
CASTS = Metric(
    COUNTER, 'novasched_casts_total',
    'Announcements of other services, handled or ignored.', ('outcome',),
)  # fmt: skip
SNAPSHOT_AGE = Metric(
    GAUGE, 'novasched_snapshot_age_seconds',
    'Seconds since the hosts were last read, which requests have done.', mode=MAX,
)  # fmt: skip
SNAPSHOT_HOSTS = Metric(
    GAUGE, 'novasched_snapshot_hosts', 'Hosts that are known, of all cells.', mode=MAX
)
ROWS_REFRESHED = Metric(
    COUNTER, 'novasched_snapshot_rows_refreshed_total',
    'Rows of compute nodes and services that were new, changed or gone when they were read.',
)  # fmt: skip
PENDING_CLAIMS = Metric(
    GAUGE, 'novasched_pending_claims',
    'Instances that got a host which does not report them yet.', mode=SUM,
)  # fmt: skip
BREAKER_OPEN = Metric(
    GAUGE, 'novasched_breaker_open',
    '1 while a worker asks nothing of a target that did not answer: placement, database, '
    'api_database, or a cell.', ('target', 'cell'), MAX,
)  # fmt: skip
CLEANUPS = Metric(
    GAUGE, 'novasched_allocation_cleanups_pending',
    'Allocations that are still to be deleted in Placement.', mode=SUM,
)  # fmt: skip
RECORDS_DROPPED = Metric(
    COUNTER, 'novasched_records_dropped_total',
    'Decision records that were not kept, since too many waited.',
)  # fmt: skip
NOTIFICATIONS_DROPPED = Metric(
    COUNTER, 'novasched_notifications_dropped_total',
    'Notifications that were not sent, since too many waited.',
)  # fmt: skip
WORKERS = Metric(GAUGE, 'novasched_workers', 'Worker processes that take requests.', mode=SUM)
BUILD = Metric(GAUGE, 'novasched_build_info', 'Always 1, with the version.', ('version',), MAX)

METRICS = tuple(value for value in list(vars().values()) if isinstance(value, Metric))
