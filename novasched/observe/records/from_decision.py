# SPDX-License-Identifier: Apache-2.0
"""Records made of decisions: names, numbers and reasons."""

import hashlib
import hmac
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, zip_longest
from typing import Any

from novasched.conf.redaction import one_line, one_line_each, redact
from novasched.observe.records.record import (
    AttemptRecord,
    HostNames,
    ReasonCount,
    Record,
    Rejections,
    RequestParts,
    RequestSummary,
    Result,
    Stage,
    StageRejections,
    parts_from_json,
    to_json,
)
from novasched.scheduler.decision import Decision, FilterResult, PlacementAttempt
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.image_properties import SECRET_PROPERTIES
from novasched.scheduler.model.request import Destination, Request

HASH_DIGITS = 16
"""Digits that stand for an id that is not shown."""
MAX_KEPT_ITEMS = 20
"""Extra specs, hints, properties and names of each kind that are in a summary."""
MAX_PARTS_CHARACTERS = 8_000
"""What a summary lacks is kept beside it if its JSON is no longer than that: a group of
100 members, for example."""

NAME_FIELDS = ('ignore_hosts', 'force_hosts', 'force_nodes')
OMITTED_FIELDS = (
    'instance_group',
    'requested_destination',
    'pci_requests',
    'requested_resources',
    'requested_networks',
    'root_required',
    'root_forbidden',
    'same_subtree',
)
"""Fields of a request that are not in a summary, or only in short."""

MAX_REASONS = 5
"""Reasons of a filter that are kept apart."""
OTHERS = 'other reasons'

_UUID = r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
_ADDRESS = r'(?<!\d)\d+(?:\.\d+){3}(?![\d/])'
_NUMBER = r'(?<![\w.:/-])-?\d+(?:\.\d+)?(?:e\+\d+)?(?![\w:/-]|\.\d)'
_VARIES = re.compile(rf'({_UUID}|{_ADDRESS}|{_NUMBER})')


def record_of(
    decision: Decision, id: str, at: float, key: bytes | None = None
) -> Record:
    """The record of a decision.

    :param at: when it began (seconds since 1970).
    :param key: hashes under this key stand for the ids of project and user.
    """
    request = decision.request
    selections = decision.selections
    return Record(
        id,
        at,
        decision.seed,
        request.request_id,
        request.global_request_id,
        summary_of(request, key),
        decision.counts,
        tuple(map(_attempt, decision.attempts)),
        decision.seconds,
        Result(
            decision.hosts,
            len(selections[0]) - 1 if selections else 0,
            _line(decision.refusal),
            _line(decision.failure),
        ),
        decision.together_refused,
        decision.outdated,
    )


def rejections_of(decision: Decision) -> Rejections:
    """The reasons against each host, and the order of the others for the first
    instance."""
    attempts = decision.attempts
    results = [result for attempt in attempts for result in attempt.ranking.filters]
    ranked = attempts[0].ranking.hosts if attempts and attempts[0].ranking.best else ()
    return Rejections(
        [_rejections(each) for each in results if each.reasons], host_names(ranked)
    )


def _attempt(attempt: PlacementAttempt) -> AttemptRecord:
    ranking = attempt.ranking
    return AttemptRecord(
        attempt.instance_uuid,
        attempt.start,
        attempt.pending,
        tuple(
            Stage(
                result.name, result.start, result.end, grouped(Counter(result.reasons))
            )
            for result in ranking.filters
        ),
        attempt.passed,
        ranking.best,
        tuple(host for host, _ in dict.fromkeys(attempt.refused)),
        attempt.unfit,
    )


def _rejections(result: FilterResult) -> StageRejections:
    texts = one_line_each(result.reasons)
    number = {reason: index for index, reason in enumerate(texts)}
    which = [number[reason] for reason in result.reasons]
    return StageRejections(
        result.name, host_names(result.rejected_hosts), [*texts.values()], which
    )


def host_names(hosts: Sequence[Host]) -> HostNames:
    """The names of hosts, and of their nodes."""
    hosts = [*hosts]  # a ranking looks each up anew
    names = [host.host for host in hosts]
    nodes = [host.nodename for host in hosts]
    return HostNames(names, () if names == nodes else nodes)


def summary_of(request: Request, key: bytes | None = None) -> RequestSummary:
    """A request in short; for the key see :func:`record_of`."""
    flavor = request.flavor
    group = request.instance_group
    image = request.image
    destination = request.requested_destination or Destination()
    names = destination.host, destination.node
    summary = RequestSummary(
        servers=request.instance_uuids or (),
        count=request.count,
        project=_line(_hashed(request.project_id, key)),
        user=_line(_hashed(request.user_id, key)),
        flavor=one_line(flavor.name),
        vcpus=flavor.vcpus,
        memory_mb=flavor.memory_mb,
        disk_gb=(0 if request.is_bfv else flavor.root_gb) + flavor.ephemeral_gb,
        extra_specs=_short(flavor.extra_specs),
        image=_line(image.id) if image else None,
        zone=_line(request.availability_zone),
        hints=_short(
            {name: ', '.join(each) for name, each in request.scheduler_hints.items()}
        ),
        policy=_line(group.policy) if group else None,
        destination=_line(' '.join(filter(None, names)) or None),
        ignore_hosts=request.ignore_hosts[:MAX_KEPT_ITEMS],
        force_hosts=request.force_hosts[:MAX_KEPT_ITEMS],
        force_nodes=request.force_nodes[:MAX_KEPT_ITEMS],
        root_gb=flavor.root_gb,
        swap_mb=flavor.swap,
        is_bfv=request.is_bfv,
        flavor_id=flavor.id,
        image_format=_line(image.disk_format) if image else None,
        image_properties=_properties(request),
    )
    lacks = tuple(_omitted(request, summary))
    if key is not None and request.project_id:  # nobody can repeat it
        return replace(summary, lacks=('project_id', *lacks))
    cells = ('numa_topology',) if request.numa_topology else ()
    return replace(summary, lacks=lacks, parts=_parts(request, (*cells, *lacks)))


def _parts(request: Request, names: Sequence[str]) -> RequestParts | None:
    """The parts of a request of these names that come back from JSON as they are, in
    which nothing is secret, and that are short enough all together."""
    inside = {
        'extra_specs': request.flavor.extra_specs,
        'image': _open_properties(request),
    }
    kept: dict[str, Any] = {}
    left = MAX_PARTS_CHARACTERS
    for name in names:
        if name not in RequestParts.__struct_fields__:
            continue
        part = inside[name] if name in inside else getattr(request, name)
        one = RequestParts(**dict[str, Any]({name: part}))
        try:
            text = to_json(part).decode()
            is_whole = parts_from_json(to_json(one)) == one
        except (TypeError, ValueError, OverflowError):
            continue
        if is_whole and len(text) <= left and redact(text) == text:
            kept[name] = part
            left -= len(text)
    if kept:
        return RequestParts(**kept)
    return None


def _omitted(request: Request, summary: RequestSummary) -> Iterator[str]:
    """The parts of a request that are not in its summary, or not as they are."""
    if summary.zone != request.availability_zone:
        yield 'availability_zone'
    if summary.extra_specs != request.flavor.extra_specs:
        yield 'extra_specs'
    if {
        name: (text,) for name, text in summary.hints.items()
    } != request.scheduler_hints:
        yield 'scheduler_hints'
    if summary.image_properties != _open_properties(request):
        yield 'image'
    if request.numa_topology:
        yield from (name for name in ('physnets', 'tunneled') if getattr(request, name))
    if request.retry and request.retry.hosts:
        yield 'retry'
    yield from (
        name for name in NAME_FIELDS if len(getattr(request, name)) > MAX_KEPT_ITEMS
    )
    yield from (name for name in OMITTED_FIELDS if getattr(request, name))


def _properties(request: Request) -> Mapping[str, Any]:
    """Properties of the image that are numbers, flags, and texts of a bearable
    length."""
    properties = _open_properties(request)
    return {
        one_line(name): value
        for name, value in islice(properties.items(), MAX_KEPT_ITEMS)
        if isinstance(value, int)
        or (isinstance(value, str) and one_line(value) == value)
    }


def _open_properties(request: Request) -> Mapping[str, Any]:
    """The properties of the image without the secret properties. No filter looks at a
    secret property, so that the request can be repeated without the secret."""
    properties = request.requirements.properties
    if SECRET_PROPERTIES.isdisjoint(properties):
        return properties
    public = properties.keys() - SECRET_PROPERTIES
    return {name: value for name, value in properties.items() if name in public}


def _line(text: str | None) -> str | None:
    if text is None:
        return None
    return one_line(text)


def _short(texts: Mapping[str, object]) -> dict[str, str]:
    items = islice(texts.items(), MAX_KEPT_ITEMS)
    return {one_line(key): one_line(str(value)) for key, value in items}


def _hashed(text: str | None, key: bytes | None) -> str | None:
    if not text or key is None:
        return text
    return hmac.new(key, text.encode(), hashlib.sha256).hexdigest()[:HASH_DIGITS]


def grouped(counts: Mapping[str, int]) -> tuple[ReasonCount, ...]:
    """Reasons with the number of hosts of each, the commonest first; every host is
    counted. Those that differ in what varies alone are one."""
    hosts: Counter[tuple[str, ...]] = Counter()
    varying: dict[tuple[str, ...], list[Sequence[str]]] = defaultdict(list)
    pattern = _VARIES  # of reasons that are alike
    constant: tuple[str, ...] = ('', '')
    for reason, number in counts.items():
        # To find what varies takes long, and the next reason is mostly like the one
        # before.
        if match := pattern.fullmatch(reason):
            key = constant
            parts = match.groups()
        else:
            cut = _VARIES.split(reason)
            key = tuple(cut[::2])
            parts = tuple(cut[1::2])
            if key in varying:
                constant = key
                pattern = re.compile(_VARIES.pattern.join(map(re.escape, key)))
        hosts[key] += number
        varying[key].append(parts)
    reasons = [
        ReasonCount(one_line(_merged(key, varying[key])), hosts[key]) for key in hosts
    ]
    reasons.sort(key=lambda count: (-count.hosts, count.reason))
    if len(reasons) > MAX_REASONS:
        rest = sum(count.hosts for count in reasons[MAX_REASONS - 1 :])
        reasons[MAX_REASONS - 1 :] = [ReasonCount(OTHERS, rest)]
    return tuple(reasons)


def _merged(constant: Sequence[str], varying: Sequence[Sequence[str]]) -> str:
    """One text that stands for all reasons with the same constant parts."""
    ranges = [_range(set(column)) for column in zip(*varying, strict=True)]
    return ''.join(chain.from_iterable(zip_longest(constant, ranges, fillvalue='')))


def _range(values: set[str]) -> str:
    if len(values) == 1:
        return values.pop()
    try:
        return f'{min(values, key=float)} to {max(values, key=float)}'
    except ValueError:  # addresses or UUIDs
        return 'this or that'
