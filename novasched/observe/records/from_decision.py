# SPDX-License-Identifier: Apache-2.0
"""Records, made from decisions."""

import dataclasses
import math
import re
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice, zip_longest
from typing import Any, get_type_hints

import msgspec

from novasched.conf.redaction import one_line, one_line_each, redact
from novasched.observe.records.record import (
    REQUEST_FIELDS,
    AttemptRecord,
    HostNames,
    ReasonCount,
    Record,
    Rejections,
    RejectionStage,
    Result,
    StageRejections,
)
from novasched.scheduler.decision import Decision, FilterResult, PlacementAttempt
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.image_properties import SECRET_PROPERTIES
from novasched.scheduler.model.request import Request

MAX_REQUEST_CHARACTERS = 16_000
"""Length of the JSON of a request's fields. A field that does not fit is shortened. A
group of 200 members fits."""

MAX_KEPT_ITEMS = 20
"""Number of items of a shortened collection."""

ALWAYS_WHOLE = ('instance_uuids', 'instance_uuid')
"""Fields that are never shortened, since decisions are found by them."""

MAX_REASONS = 5
"""Number of reasons that are counted for a filter; further reasons are one."""

OTHERS = 'other reasons'

_UUID = r'[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}'
_ADDRESS = r'(?<!\d)\d+(?:\.\d+){3}(?![\d/])'
_NUMBER = r'(?<![\w.:/-])-?\d+(?:\.\d+)?(?:e\+\d+)?(?![\w:/-]|\.\d)'
_VARIES = re.compile(rf'({_UUID}|{_ADDRESS}|{_NUMBER})')


def record_of(decision: Decision, id: str, at: float) -> Record:
    """The record of a decision.

    :param at: when the decision began (seconds since 1970).
    """
    request = decision.request
    kept, missing_fields = kept_request(request)

    alternates = 0
    if decision.selections:
        alternates = len(decision.selections[0]) - 1
    result = Result(
        hosts=decision.hosts,
        alternates=alternates,
        refusal=_line(decision.refusal),
        failure=_line(decision.failure),
    )

    return Record(
        id=id,
        at=at,
        seed=decision.seed,
        request_id=request.request_id,
        global_request_id=request.global_request_id,
        request=kept,
        counts=decision.counts,
        attempts=tuple(map(_attempt, decision.attempts)),
        steps=decision.seconds,
        result=result,
        together_refused=decision.together_refused,
        outdated=decision.outdated,
        missing_fields=missing_fields,
    )


def rejections_of(decision: Decision) -> Rejections:
    """The reasons against single hosts, and the ranked hosts of the first instance."""
    dropped = []
    for attempt in decision.attempts:
        for result in attempt.ranking.filters:
            if result.reasons:
                dropped.append(_rejections(result))

    ranked: Sequence[Host] = ()
    if decision.attempts and decision.attempts[0].ranking.best:
        ranked = decision.attempts[0].ranking.hosts
    return Rejections(dropped, host_names(ranked))


def _attempt(attempt: PlacementAttempt) -> AttemptRecord:
    ranking = attempt.ranking
    stages = []
    for result in ranking.filters:
        rejections = grouped(Counter(result.reasons))
        stages.append(RejectionStage(result.name, result.start, result.end, rejections))
    return AttemptRecord(
        instance=attempt.instance_uuid,
        start=attempt.start,
        pending=attempt.pending,
        stages=tuple(stages),
        passed=attempt.passed,
        best=ranking.best,
        refused=tuple(host for host, _ in dict.fromkeys(attempt.refused)),
        unfit=attempt.unfit,
    )


def _rejections(result: FilterResult) -> StageRejections:
    # Thousands of hosts share a few reasons.
    lines = one_line_each(result.reasons)
    indexes = {reason: index for index, reason in enumerate(lines)}
    which = [indexes[reason] for reason in result.reasons]
    names = host_names(result.rejected_hosts)
    return StageRejections(result.name, names, list(lines.values()), which)


def host_names(hosts: Sequence[Host]) -> HostNames:
    """The names of hosts, and of their nodes."""
    hosts = list(hosts)  # a ranking looks up a host at each access
    names = [host.host for host in hosts]
    nodes = [host.nodename for host in hosts]
    if names == nodes:
        return HostNames(names)
    return HostNames(names, nodes)


_TYPES = get_type_hints(Request)
_DECODERS = {name: msgspec.json.Decoder(_TYPES[name]).decode for name in REQUEST_FIELDS}
"""Decode the JSON of a single field of a request."""


def kept_request(request: Request) -> tuple[Request, tuple[str, ...]]:
    """The request for a record, and the names of the fields that differ."""
    request = _without_secrets(request)
    missing = []
    changes: dict[str, Any] = {}
    remaining = MAX_REQUEST_CHARACTERS
    for name, default in REQUEST_FIELDS.items():
        value = getattr(request, name)
        if value == default or name in ALWAYS_WHOLE or name in changes:
            continue
        length = _whole_length(name, value, remaining)
        if length is None:
            changes[name] = _shortened(value)
            missing.append(name)
        else:
            remaining -= length
    return replace(request, **changes), tuple(missing)


def _without_secrets(request: Request) -> Request:
    """The request without its message, without secret image properties, which no filter
    reads, and without the hosts of group members."""
    changes: dict[str, Any] = {
        'request_id': None,
        'global_request_id': None,
        'received': math.inf,
        'origin': None,
    }
    image = request.image
    if image is not None and not SECRET_PROPERTIES.isdisjoint(image.properties):
        public = {}
        for name, value in image.properties.items():
            if name not in SECRET_PROPERTIES:
                public[name] = value
        changes['image'] = replace(image, properties=public)
    if request.instance_group is not None:
        changes['instance_group'] = replace(request.instance_group, located={})
    return replace(request, **changes)


def _whole_length(name: str, value: object, limit: int) -> int | None:
    """The length of the JSON of a field; None if the JSON is longer than the limit,
    does not decode to the same value, or holds a secret."""
    try:
        text = msgspec.json.encode(value).decode()
        # A user may send megabytes, which are not searched for secrets.
        if len(text) > limit or _DECODERS[name](text) != value:
            return None
    except (TypeError, ValueError, OverflowError):
        return None
    if redact(text) != text:
        return None
    return len(text)


def _shortened(value: Any) -> Any:
    """A value with short texts without secrets, and with few items."""
    if value is None or isinstance(value, int):
        return value
    if isinstance(value, str):
        return one_line(value)
    if isinstance(value, float) and math.isfinite(value):
        return value
    if isinstance(value, Mapping):
        items = islice(value.items(), MAX_KEPT_ITEMS)
        return {one_line(str(key)): _shortened(item) for key, item in items}
    if isinstance(value, (tuple, list, frozenset)):
        return type(value)(map(_shortened, islice(value, MAX_KEPT_ITEMS)))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        changes = {}
        for value_field in dataclasses.fields(value):
            changes[value_field.name] = _shortened(getattr(value, value_field.name))
        return replace(value, **changes)
    return one_line(str(value))


def _line(text: str | None) -> str | None:
    if text is None:
        return None
    return one_line(text)


def grouped(counts: Mapping[str, int]) -> tuple[ReasonCount, ...]:
    """Reasons with their numbers of hosts, the most frequent reason first. Reasons that
    differ only in numbers, addresses or UUIDs are one reason. Every host counts."""
    hosts: Counter[tuple[str, ...]] = Counter()
    varying: dict[tuple[str, ...], list[Sequence[str]]] = defaultdict(list)
    # The search for varying parts is slow, and a reason is mostly like the reason
    # before. So the pattern of the last reason is tried first.
    pattern = _VARIES
    constant: tuple[str, ...] = ('', '')
    for reason, number in counts.items():
        if match := pattern.fullmatch(reason):
            key = constant
            parts = match.groups()
        else:
            pieces = _VARIES.split(reason)
            key = tuple(pieces[::2])
            parts = tuple(pieces[1::2])
            if key in varying:
                constant = key
                pattern = re.compile(_VARIES.pattern.join(map(re.escape, key)))
        hosts[key] += number
        varying[key].append(parts)

    reasons = []
    for key, number in hosts.items():
        reasons.append(ReasonCount(one_line(_merged(key, varying[key])), number))
    reasons.sort(key=lambda count: (-count.hosts, count.reason))
    if len(reasons) > MAX_REASONS:
        rest = sum(count.hosts for count in reasons[MAX_REASONS - 1 :])
        reasons[MAX_REASONS - 1 :] = [ReasonCount(OTHERS, rest)]
    return tuple(reasons)


def _merged(constant: Sequence[str], varying: Sequence[Sequence[str]]) -> str:
    """The text of all reasons with the same constant parts."""
    ranges = [_range(set(column)) for column in zip(*varying, strict=True)]
    return ''.join(chain.from_iterable(zip_longest(constant, ranges, fillvalue='')))


def _range(values: set[str]) -> str:
    if len(values) == 1:
        return values.pop()
    try:
        return f'{min(values, key=float)} to {max(values, key=float)}'
    except ValueError:
        # Addresses and UUIDs have no useful range.
        return 'this or that'
