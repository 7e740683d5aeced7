# SPDX-License-Identifier: Apache-2.0
"""JsonFilter: the scheduler hint ``query`` is a condition on the host, as JSON.

A query is a list of an operator and its terms. A term is a query or a value. A text
with a dollar sign, such as ``"$free_ram_mb"`` or ``"$stats.gpus"``, stands for an
attribute of the host. Empty texts, nulls and attributes that do not exist are left out
of the terms.
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
    """Reject hosts that do not meet the query of the request."""

    scope = Scope.HOST
    phrase = 'do not meet the query'

    def applies(self, request: Request) -> bool:
        return request.has_hint(HINT)

    def needed_instances(self, request: Request) -> Collection[str] | None:
        try:
            query = _query(request.single_hint(HINT))
        except (ValueError, RecursionError):
            return ()  # every host is rejected, regardless of instances
        if _names(query, INSTANCES):
            return None
        return ()

    def reject(self, host: Host, request: Request) -> str | None:
        try:
            answer = _answer(_query(request.single_hint(HINT)), host)
        except (ValueError, TypeError, RecursionError) as error:
            return f'the query cannot be answered: {error}'
        # The operator "not" answers a list with a value for each term.
        if isinstance(answer, list):
            answer = any(answer)
        if answer:
            return None
        return 'the query is not true'


@lru_cache(maxsize=16)  # the filter reads the same text for each host
def _query(text: str) -> Any:
    """Parse a query.

    :raises ValueError: the text is not JSON, or the query is too long.
    """
    if len(text) > MAX_QUERY_CHARACTERS:
        raise ValueError(f'it has more than {MAX_QUERY_CHARACTERS} characters')

    query = json.loads(text)
    # As in nova, a text in place of a query is a list of letters.
    terms = [query]
    if isinstance(query, str):
        terms = [*query]
    for term in terms:
        if isinstance(term, list):
            terms.extend(term)  # the loop continues with the nested terms
        if len(terms) > MAX_QUERY_TERMS:
            raise ValueError(f'it has more than {MAX_QUERY_TERMS} terms')
    return query


def _compare(test: Callable[[Any, Any], bool], terms: Sequence[Any]) -> bool:
    """True if the first term passes the test with every further term."""
    if len(terms) < 2:
        return False
    # A list, and not a generator: terms of different types are an error even if an
    # earlier comparison is false.
    first = terms[0]
    return False not in [test(first, term) for term in terms[1:]]


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
    """The result of a query: a list of booleans for the operator ``not``, a boolean for
    every other operator, True for an empty query.

    As in nova, a text in place of a query is a list of letters.

    :raises ValueError: the value is not a query.
    :raises TypeError: values of different types are compared.
    """
    if not query:
        return True

    if not isinstance(query, list | str) or not isinstance(query[0], str):
        raise ValueError(f'{reprlib.repr(query)} does not start with an operator')
    if query[0] not in _OPERATORS:
        raise ValueError(f'{reprlib.repr(query[0])} is no operator')

    terms = []
    for term in query[1:]:
        if isinstance(term, list):
            value = _answer(term, host)
        else:
            value = _value(term, host)
        if value is not None:
            terms.append(value)
    return _OPERATORS[query[0]](terms)


def _names(query: Any, start: str) -> bool:
    """True if a text in a query begins with ``start``."""
    # A stack in place of a recursion, since queries may be nested deeply.
    terms = [query]
    while terms:
        term = terms.pop()
        if isinstance(term, list):
            terms.extend(term)
        elif isinstance(term, str) and term.startswith(start):
            return True
    return False


def _value(term: Any, host: Host) -> Any:
    """The value of a term that is not a query; ``None`` for a term to leave out."""
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
    """The member of a dict, a host, a service or an instance with a name, or ``None``.

    :raises ValueError: the value has no members.
    """
    if isinstance(value, Mapping):
        return value.get(name)
    fields = getattr(type(value), '__dataclass_fields__', None)
    if fields is None:
        raise ValueError(f'there is no {reprlib.repr(name)} in {reprlib.repr(value)}')
    if name not in fields:
        return None

    member = getattr(value, name)
    # The fields ``numa`` and ``pci`` of a host are functions, and not data.
    if callable(member):
        return None
    return member
