# SPDX-License-Identifier: Apache-2.0
"""The pictures of the page in the documentation show the page of today."""

import pytest

from tests.lab.pictures import FOLDER, PICTURES, words, words_of


@pytest.fixture(scope='module')
def words_of_today(tmp_path_factory):
    """The words of each page of a picture, by the name of the picture."""
    return words(tmp_path_factory.mktemp('page'))


@pytest.mark.parametrize('name', PICTURES)
def test_a_picture_has_the_words_of_the_page(name, words_of_today):
    """A change of the words of the page makes its pictures outdated: ``tox -e pictures``
    makes them anew."""
    assert words_of(FOLDER / f'{name}.png') == words_of_today[name]
