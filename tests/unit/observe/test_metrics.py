# SPDX-License-Identifier: Apache-2.0
"""Metrics of several workers, read from their shared files."""

from collections import deque
from dataclasses import replace

import pytest
from prometheus_client.multiprocess import mark_process_dead
from prometheus_client.parser import text_string_to_metric_families

from novasched.observe import metrics
from novasched.observe.metrics import MetricsText
from novasched.scheduler.decision import (
    ALL_HOSTS,
    CandidateCounts,
    Decision,
    FilterResult,
    PlacementAttempt,
    Ranking,
)
from novasched.scheduler.model.basis import FRESH
from novasched.scheduler.model.host import Selection
from tests.lab.builders import a_host, a_request


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv('PROMETHEUS_MULTIPROC_DIR', str(tmp_path))
    return str(tmp_path)


def seen(directory, metric):
    """The exposed values of a metric, by labels."""
    families = text_string_to_metric_families(MetricsText(directory).read().decode())
    values = {}
    for family in families:
        for sample in family.samples:
            if sample.name in (metric.name, f'{metric.name}_count'):
                labels = tuple(sample.labels[label] for label in metric.labels)
                values[labels] = sample.value
    return values


def test_metrics_are_combined_over_the_workers(directory):
    """Counters and most gauges are summed over the workers, and the remaining gauges
    show the maximum. Counters of an ended worker stay, and its successor continues
    them."""
    one = metrics.Instruments(0)
    two = metrics.Instruments(1)
    three = metrics.REQUESTS, metrics.PENDING_CLAIMS, metrics.SNAPSHOT_AGE
    for worker, amount in ((one, 1), (two, 2)):
        worker.of(metrics.REQUESTS, 'placed').inc(amount)
        worker.of(metrics.PENDING_CLAIMS).set(amount)
        worker.of(metrics.SNAPSHOT_AGE).set(amount)
    assert [seen(directory, each) for each in three] == [
        {('placed',): 3},
        {(): 3},
        {(): 2},
    ]
    mark_process_dead(1, directory)
    assert [seen(directory, each) for each in three] == [
        {('placed',): 3},
        {(): 1},
        {(): 1},
    ]
    metrics.Instruments(1).of(metrics.REQUESTS, 'placed').inc(5)
    assert seen(directory, metrics.REQUESTS) == {('placed',): 8}


def test_counters_of_results_start_at_zero(directory):
    """Counters of results are exposed with 0, because a rate needs a value to start
    from."""
    counters = metrics.DecisionCounters(metrics.Instruments(0))
    assert seen(directory, metrics.REQUESTS) == {
        ('placed',): 0,
        ('refused',): 0,
        ('failed',): 0,
    }
    chosen = Selection.of(a_host('a'), None, 'nova', {})
    ranking = Ranking([], (FilterResult('One', 2, [], ['no'], 3.0),))
    attempt = PlacementAttempt(None, 0, 2, 0, ranking)
    counts = CandidateCounts(2, 2, source=ALL_HOSTS)
    counters(
        Decision(
            a_request(),
            FRESH,
            1,
            0.0,
            5.0,
            counts=counts,
            attempts=(attempt,),
            selections=[[chosen]],
        )
    )
    assert seen(directory, metrics.CANDIDATES) == {
        ('remembered',): 0,
        ('all_hosts',): 1,
        ('own_query',): 0,
    }
    assert seen(directory, metrics.HOSTS_IN) == {('One',): 2}
    assert seen(directory, metrics.HOSTS_OUT) == {('One',): 1}
    assert seen(directory, metrics.FILTER_SECONDS) == {('One',): 3.0}
    assert seen(directory, metrics.REQUESTS) == {
        ('placed',): 1,
        ('refused',): 0,
        ('failed',): 0,
    }


def test_sampled_counters_never_shrink_and_lost_gauges_become_zero(directory):
    """A counter grows by the difference and never shrinks. A gauge whose labels
    disappear goes to 0. Waiting times are added to the histogram."""
    casts = {('handled',): 3}
    breakers = {('cell', 'c1'): True}
    waits = deque([0.1, 0.2])
    readers = {
        metrics.CASTS: lambda view: dict(casts),
        metrics.BREAKER_OPEN: lambda view: dict(breakers),
    }
    look = metrics.Sampler(metrics.Instruments(0), readers, waits)
    look(None)
    assert seen(directory, metrics.CASTS) == {('handled',): 3}
    assert seen(directory, metrics.BREAKER_OPEN) == {('cell', 'c1'): 1}
    assert seen(directory, metrics.MESSAGE_WAIT) == {(): 2}
    casts['handled',] = 5
    del breakers['cell', 'c1']
    look(None)
    casts['handled',] = 4
    look(None)
    assert seen(directory, metrics.CASTS) == {('handled',): 5}
    assert seen(directory, metrics.BREAKER_OPEN) == {('cell', 'c1'): 0}
    assert seen(directory, metrics.MESSAGE_WAIT) == {(): 2}


def test_the_text_of_metrics_is_made_again_when_too_old(directory):
    """The text is made again when it is too old."""
    worker = metrics.Instruments(0)
    now = [0.0]
    exposed = MetricsText(directory, clock=lambda: now[0])
    before = exposed.read()
    worker.of(metrics.REQUESTS, 'placed').inc()
    assert exposed.read() == before
    now[0] = 1.0
    assert b'result="placed"} 1.0' in exposed.read()


def test_false_hints_are_counted(directory):
    """A request without the hint counts 0."""
    counters = metrics.DecisionCounters(metrics.Instruments(0))
    for request in (a_request(), replace(a_request(), had_false_hint=True)):
        counters(Decision(request, 1, 0.0, 5.0))
    assert seen(directory, metrics.FALSE_HINTS) == {(): 1}
