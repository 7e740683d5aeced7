# SPDX-License-Identifier: Apache-2.0
"""The pictures of the page in the documentation. Each file holds the words of the page
at the time of the picture, so that a test notices an outdated picture."""

import re
from io import BytesIO
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo

from novasched.observe.records import render
from novasched.observe.records.store import RecordReader
from tests.lab.page_sample import a_site, ask, seen

FOLDER = Path(__file__).parents[2] / 'doc' / 'source' / 'images'

PICTURES = {
    'page-hosts': ('/', '', 'light', 900),
    'page-pinned-dark': ('/', 'show=pinned&by=zone', 'dark', 900),
    'page-decision': ('/decisions/{placed}', 'host=compute-0007', 'light', 1000),
}
"""The path, the query, the colour scheme and the height of a picture by its name."""

SAMPLE_HOSTS = 1000
SAMPLE_REQUESTS = 40
"""The size of the cloud whose pages give the words. Pictures show a larger cloud, with
names of hosts of the same length."""

NUMBER = re.compile(r'\S*\d\S*')
WORD = re.compile(r'[A-Za-z]{3,}')
"""Shorter words may be units, which depend on the speed of the machine."""


def placed(path):
    """The ID of the newest decision that placed a single server after filters had
    rejected hosts.

    :param path: the file of the records.
    """
    for record in RecordReader(str(path)).newest(SAMPLE_REQUESTS):
        if len(record.result.hosts) == 1 and len(render.tally(record)) > 3:
            return record.id
    raise LookupError('no such decision')


def words(folder):
    """The words of each page of :data:`PICTURES`, sorted, by the name of the picture.

    :param folder: an empty directory.
    """
    page, path = a_site(folder, SAMPLE_HOSTS, SAMPLE_REQUESTS)
    texts = {}
    for name, (place, query, *_) in PICTURES.items():
        answer = ask(page, place.format(placed=placed(path)), query)
        assert answer.status == 200, answer.text
        text = NUMBER.sub('', seen(answer).text)
        texts[name] = ' '.join(sorted(set(WORD.findall(text))))
    return texts


def save(png, text, path):
    """Save a screenshot with the words of its page.

    :param png: the screenshot, in the format PNG.
    """
    info = PngInfo()
    info.add_text('Description', text)
    with Image.open(BytesIO(png)) as image:
        image.save(path, pnginfo=info, optimize=True)


def words_of(path):
    """The words in a picture; None without words."""
    with Image.open(path) as image:
        return image.info.get('Description')
