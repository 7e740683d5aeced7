# SPDX-License-Identifier: Apache-2.0
import pytest

from tests.simulation.mutations import MUTATIONS, ROOT


@pytest.mark.parametrize('mutation', MUTATIONS, ids=lambda mutation: mutation.title)
def test_a_mutation_replaces_a_single_text_of_the_product(mutation):
    """The text that a mistake replaces is in the product, once."""
    text = (ROOT / 'novasched' / mutation.path).read_text(encoding='utf-8')
    assert text.count(mutation.old) == 1
    assert mutation.new != mutation.old
