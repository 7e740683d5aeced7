# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.scheduler.model.candidate import LazySequence


@pytest.mark.parametrize(
    ('look', 'answer', 'made'),
    [
        (bool, True, 1),
        (lambda items: items[0], 10, 1),
        (lambda items: items[2], 12, 3),
        (lambda items: next(iter(items)), 10, 1),
        (lambda items: items[-1], 13, 4),
        (lambda items: items[1:3], [11, 12], 4),
        (len, 4, 4),
        (list, [10, 11, 12, 13], 4),
        (lambda items: items == [10, 11, 12, 13], True, 4),
        (lambda items: items == [10], False, 4),
    ],
)
def test_a_lazy_sequence_makes_items_up_to_the_last_needed_item(look, answer, made):
    """Items behind the last needed item are not made, and no item is made twice."""
    numbers = []

    def items():
        for number in range(10, 14):
            numbers.append(number)
            yield number

    sequence = LazySequence(items())
    assert look(sequence) == answer
    assert len(numbers) == made
    assert look(sequence) == answer
    assert len(numbers) == made


def test_an_empty_sequence_has_no_items():
    sequence = LazySequence(())
    assert not sequence
    assert len(sequence) == 0
    with pytest.raises(IndexError):
        sequence[0]
