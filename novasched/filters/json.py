# SPDX-License-Identifier: Apache-2.0
"""JsonFilter: the hint ``query`` is a condition on the host, written in JSON.

A query is a list: an operator, then its terms. A term is a query, a value, or a text;
``"$free_ram_mb"`` and ``"$stats.gpus"`` are texts that stand for what the host has there.
Empty texts, nulls and what is not there are left out of the terms.
"""

from __future__ import annotations

import json
import operator
import reprlib
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from novasched.filters import Filter
from novasched.filters.hints import is_given, single
from novasched.model.host import Host
from novasched.model.request import Request

HINT = 'query'


class JsonFilter(Filter):
    """Reject hosts for which the query is not true."""

    once_per_host = True
    reads_instances = True

    def applies(self, request: Request) -> bool:
        return is_given(request, HINT)

    def reject(self, host: Host, request: Request) -> str | None:
        try:
            answer = _answer(_query(single(request, HINT)), host)
        except (ValueError, TypeError, RecursionError) as error:
            return f'the query cannot be answered: {error}'
        holds = any(answer) if isinstance(answer, list) else answer
        return None if holds else 'the query is not true'


_query = lru_cache(maxsize=16)(json.loads)
"""The same text comes once for each host."""


def _compare(test: Callable[[Any, Any], bool], terms: Sequence[Any]) -> bool:
    """Whether the first term stands in a relation to each other one."""
    return len(terms) > 1 and False not in [test(terms[0], other) for other in terms[1:]]


_OPERATORS: Mapping[str, Callable[[Sequence[Any]], Any]] = {
    '=': partial(_compare, operator.eq),
    '<': partial(_compare, operator.lt),
    '>': partial(_compare, operator.gt),
    '<=': partial(_compare, operator.le),
    '>=': partial(_compare, operator.ge),
    'in': lambda terms: len(terms) > 1 and terms[0] in terms[1:],
    'not': lambda terms: [not term for term in terms],
    'or': any,
    'and': all,
}


def _answer(query: Any, host: Host) -> Any:
    """What a query comes to: a list of booleans from ``not``, else one; true if empty.
    Like nova's, a text in place of a query is a list of its letters.

    :raises ValueError: it is no query.
    :raises TypeError: values of unlike types are compared.
    """
    if not query:
        return True
    if not isinstance(query, list | str) or not isinstance(query[0], str):
        raise ValueError(f'{reprlib.repr(query)} does not start with an operator')
    if query[0] not in _OPERATORS:
        raise ValueError(f'{reprlib.repr(query[0])} is no operator')
    terms = []
    for term in query[1:]:
        value = _answer(term, host) if isinstance(term, list) else _value(term, host)
        if value is not None:
            terms.append(value)
    return _OPERATORS[query[0]](terms)


def _value(term: Any, host: Host) -> Any:
    """What a term that is no query stands for; None if it is to be left out."""
    if not isinstance(term, str):
        return term
    if not term.startswith('$'):
        return term or None
    value: Any = host
    for name in term[1:].split('.'):
        value = _member(value, name)
        if value is None:
            break
    return value


def _member(value: Any, name: str) -> Any:
    """What a dict, a host, its service or its server has of that name, or None."""
    if isinstance(value, Mapping):
        return value.get(name)
    fields = getattr(type(value), '__dataclass_fields__', None)
    if fields is None:
        raise ValueError(f'there is no {reprlib.repr(name)} in {reprlib.repr(value)}')
    found = getattr(value, name) if name in fields else None
    return None if callable(found) else found
