# SPDX-License-Identifier: Apache-2.0
"""Texts on which a regular expression backtracks, made from the parse tree of the
pattern.

A pattern takes more than linear time if a match begins at many places and every try
reads far (``'a://a://a://...'`` for ``\\w+://.*@``), or if two repeats can read the same
characters. The texts repeat the beginning of a match, with another part of the pattern
in each text, and end in a near miss.
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from itertools import product
from re import _constants as ops
from re import _parser as parser
from typing import Any

REPEATS = (ops.MAX_REPEAT, ops.MIN_REPEAT)
CATEGORIES = {
    ops.CATEGORY_DIGIT: '1',
    ops.CATEGORY_NOT_DIGIT: 'a',
    ops.CATEGORY_SPACE: ' ',
    ops.CATEGORY_NOT_SPACE: 'a',
    ops.CATEGORY_WORD: 'a',
    ops.CATEGORY_NOT_WORD: '-',
}
ORDINARY = 'a1 .:/-A\n'
MAX_VARIANTS = 6
"""Texts of one part of a pattern, such as the branches of an alternative."""
LEADS = ('', '@', ' ')
TAILS = ('', 'a', '@', '\n!', "'")
GAPS = ('', ' ', ',')
TRIAL_CHARACTERS = 1_000
TRIAL_S = 0.01
"""Seconds of CPU. The search for texts ends with a text that takes more."""


MakeText = Callable[[int], str]
"""Makes a text from a number of characters."""


def worst_texts(pattern: re.Pattern[str], number: int = 3) -> list[MakeText]:
    """The texts on which a pattern takes longest."""
    trials = []
    for make in _attacks(pattern):
        text = make(TRIAL_CHARACTERS)
        began = time.thread_time()
        pattern.sub('', text)
        seconds = time.thread_time() - began
        if seconds > TRIAL_S:
            return [make]
        trials.append((seconds, len(trials), make))
    trials.sort(reverse=True)
    return [make for _, _, make in trials[:number]]


def _attacks(pattern: re.Pattern[str]) -> Iterator[MakeText]:
    pieces = dict.fromkeys(piece for piece in _pieces(pattern) if piece)
    for piece, gap, lead, tail in product(pieces, GAPS, LEADS, TAILS):
        yield lambda size, parts=(piece + gap, lead, tail): _repeated(*parts, size)


def _repeated(piece: str, lead: str, tail: str, size: int) -> str:
    times = (size - len(lead) - len(tail)) // len(piece)
    return f'{lead}{piece * times}{tail}'


def _pieces(pattern: re.Pattern[str]) -> Iterator[str]:
    """Matches of the beginnings of a pattern, of its parts, and of two parts in a
    row."""
    for sequence in _sequences(parser.parse(pattern.pattern, pattern.flags)):
        texts = [_text(item) for item in sequence]
        for place, text in enumerate(texts):
            yield text
            yield ''.join(texts[place : place + 2])
            yield ''.join(texts[: place + 1])
            yield ''.join(texts[place:])


def _sequences(parsed: Any) -> list[list[Any]]:
    """The parts of a pattern in rows, with the parts of groups. A branch makes a row."""
    rows: list[list[Any]] = [[]]
    for item in parsed:
        op, value = item
        if op is ops.SUBPATTERN:
            inner = _sequences(value[-1])
        elif op is ops.BRANCH:
            inner = []
            for branch in value[1]:
                inner += _sequences(branch)
        elif op in REPEATS and value[1] == 1:
            inner = _sequences(value[2])
        else:
            inner = [[item]]
        step = max(1, len(inner) // MAX_VARIANTS)
        pairs = product(rows, inner[::step])
        rows = [row + following for row, following in pairs][: 2 * MAX_VARIANTS]
    return rows


def _text(item: Any) -> str:
    """A short text that a part of a pattern matches."""
    op, value = item
    if op is ops.LITERAL:
        return chr(value)
    if op is ops.NOT_LITERAL:
        return next(character for character in ORDINARY if ord(character) != value)
    if op is ops.ANY:
        return 'a'
    if op is ops.IN:
        return _one_of(value)
    if op in REPEATS:
        return ''.join(map(_text, _sequences(value[2])[0])) * max(1, min(value[0], 3))
    if op in (ops.SUBPATTERN, ops.BRANCH):
        return ''.join(map(_text, _sequences([item])[0]))
    return ''  # a place, or a look at what stands around it


def _one_of(members: Sequence[Any]) -> str:
    if members[0][0] is ops.NEGATE:
        excluded = re.compile(f'[{"".join(map(_member, members[1:]))}]')
        allowed = [text for text in ORDINARY if not excluded.match(text)]
        return ''.join(allowed[:1])
    op, value = members[0]
    if op is ops.CATEGORY:
        return CATEGORIES[value]
    if op is ops.LITERAL:
        return chr(value)
    return chr(value[0])


def _member(member: Any) -> str:
    op, value = member
    if op is ops.CATEGORY:
        return {'1': r'\d', ' ': r'\s', 'a': r'\w'}[CATEGORIES[value]]
    if op is ops.RANGE:
        return f'{re.escape(chr(value[0]))}-{re.escape(chr(value[1]))}'
    return re.escape(chr(value))
