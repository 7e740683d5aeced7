# SPDX-License-Identifier: Apache-2.0
"""Takes the screenshots of doc/source/images: ``python -m tests.page.screenshots
[FOLDER]``."""

import base64
import sys
import tempfile
from pathlib import Path

from novasched.observe.records import render
from novasched.observe.records.store import RecordReader
from tests.lab.browser import appear, browser, served
from tests.lab.page_sample import a_site

HOSTS = 5000
REQUESTS = 40
FOLDER = Path(__file__).parents[2] / 'doc' / 'source' / 'images'


PICTURES = {
    'page-hosts': ('/', 'light', 900),
    'page-pinned-dark': ('/?show=pinned&by=zone', 'dark', 900),
    'page-decision': ('/decisions/{placed}?host=compute-0007', 'light', 1000),
}
"""The path, the colour scheme and the height of a screenshot by its name."""


def placed(path):
    """The ID of the newest decision that placed a single server after filters had
    rejected hosts."""
    for record in RecordReader(str(path)).newest(REQUESTS):
        if len(record.result.hosts) == 1 and len(render.tally(record)) > 3:
            return record.id
    raise LookupError('no such decision')


def main(folder):
    """Take all screenshots."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        page, path = a_site(Path(work), HOSTS, REQUESTS)
        with served(page) as url, browser() as driver:
            for name, (place, scheme, height) in PICTURES.items():
                appear(driver, scheme, 1280, height)
                driver.get(url + place.format(placed=placed(path)))
                shot = driver.execute_cdp_cmd(
                    'Page.captureScreenshot', {'format': 'png'}
                )
                (folder / f'{name}.png').write_bytes(base64.b64decode(shot['data']))
                print(folder / f'{name}.png')


if __name__ == '__main__':
    folder = FOLDER
    if sys.argv[1:]:
        folder = Path(sys.argv[1])
    main(folder)
