# SPDX-License-Identifier: Apache-2.0
"""Every metric there is."""

from __future__ import annotations

from dataclasses import dataclass

COUNTER, GAUGE, HISTOGRAM = 'counter', 'gauge', 'histogram'
SUM, MAX = 'livesum', 'livemax'
"""How a gauge of several workers is one: those that have ended count in neither."""

SECONDS = (
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0,
    60.0,
)  # fmt: skip
"""The upper bounds of histograms' buckets."""


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric; ``mode`` is a gauge's."""

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
SERVERS = Metric(COUNTER, 'novasched_servers_placed_total', 'Servers that got a host.')
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
    'Messages that were not begun, since nobody waited for the answer any more.',
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
INFLIGHT = Metric(
    GAUGE, 'novasched_inflight_claims',
    'Servers that have been given a host which does not show them yet.', mode=SUM,
)  # fmt: skip
BREAKER_OPEN = Metric(
    GAUGE, 'novasched_breaker_open',
    'Whether a worker leaves alone what did not answer, until it does: placement, database, '
    'api_database, or a cell.', ('target', 'cell'), MAX,
)  # fmt: skip
GIVE_BACKS = Metric(
    GAUGE, 'novasched_give_backs_pending',
    'Claims that are still to be given back to Placement.', mode=SUM,
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

METRICS = (
    REQUESTS, SERVERS, REQUEST_SECONDS, STEP_SECONDS, HOSTS_IN, HOSTS_OUT, FILTER_SECONDS,
    WEIGHER_SECONDS, CLAIMS_REFUSED, MESSAGE_WAIT, MESSAGES_WAITING, MESSAGES_IN_PROGRESS,
    MESSAGES_DROPPED, CASTS, SNAPSHOT_AGE, SNAPSHOT_HOSTS, ROWS_REFRESHED, INFLIGHT,
    BREAKER_OPEN, GIVE_BACKS, RECORDS_DROPPED, NOTIFICATIONS_DROPPED, WORKERS, BUILD,
)  # fmt: skip
