# SPDX-License-Identifier: Apache-2.0
"""JsonFilter: the hint ``query`` is a condition on the host, written in JSON.

A query is a list: an operator, then its terms. A term is a query, a value, or a text;
``"$free_ram_mb"`` and ``"$stats.gpus"`` are texts that stand for what the host has
there. Empty texts, nulls and what is not there are left out of the terms.
"""

import json
import operator
import reprlib
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request

HINT = 'query'
INSTANCES = '$instances'

MAX_QUERY_CHARACTERS = 10_000
"""Maximum length of a query."""
MAX_QUERY_TERMS = 500
"""Maximum number of terms in a query, including the terms of nested queries. A term
takes about 1 µs for each host, and nova's API accepts queries of 50,000 terms."""


class JsonFilter(Filter):
    """Reject hosts for which the query is not true."""

    scope = Scope.HOST
    phrase = 'do not meet the query'

    def applies(self, request: Request) -> bool:
        return request.has_hint(HINT)

    def needed_instances(self, request: Request) -> Collection[str] | None:
        try:
            query = _query(request.single_hint(HINT))
        except (ValueError, RecursionError):
            return ()  # no host has an answer to that
        if _names(query, INSTANCES):
            return None
        return ()

    def reject(self, host: Host, request: Request) -> str | None:
        try:
            answer = _answer(_query(request.single_hint(HINT)), host)
        except (ValueError, TypeError, RecursionError) as error:
            return f'the query cannot be answered: {error}'
        holds = any(answer) if isinstance(answer, list) else answer
        if holds:
            return None
        return 'the query is not true'


@lru_cache(maxsize=16)  # the filter reads the same text for each host
def _query(text: str) -> Any:
    """Parse a query.

    :raises ValueError: the text is no JSON, or the query is too long.
    """
    if len(text) > MAX_QUERY_CHARACTERS:
        raise ValueError(f'it has more than {MAX_QUERY_CHARACTERS} characters')

    query = json.loads(text)
    terms = [*query] if isinstance(query, str) else [query]
    for term in terms:
        if isinstance(term, list):
            terms.extend(term)  # the loop continues with the nested terms
        if len(terms) > MAX_QUERY_TERMS:
            raise ValueError(f'it has more than {MAX_QUERY_TERMS} terms')
    return query


def _compare(test: Callable[[Any, Any], bool], terms: Sequence[Any]) -> bool:
    """True if the first term stands in a relation to each other one."""
    return len(terms) > 1 and False not in [
        test(terms[0], other) for other in terms[1:]
    ]


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
    """Result of a query: a list of booleans from ``not``, else one; true if empty.
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


def _names(query: Any, start: str) -> bool:
    """True if a text in a query begins like that; queries are nested as deep as one
    likes."""
    terms = [query]
    while terms:
        term = terms.pop()
        if isinstance(term, list):
            terms.extend(term)
        elif isinstance(term, str) and term.startswith(start):
            return True
    return False


def _value(term: Any, host: Host) -> Any:
    """Value of a term that is no query; None if it is to be left out."""
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
    """Attribute of that name of a dict, a host, its service or its instance, or
    None."""
    if isinstance(value, Mapping):
        return value.get(name)
    fields = getattr(type(value), '__dataclass_fields__', None)
    if fields is None:
        raise ValueError(f'there is no {reprlib.repr(name)} in {reprlib.repr(value)}')
    found = getattr(value, name) if name in fields else None
    if callable(found):
        return None
    return found
