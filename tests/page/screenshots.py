# SPDX-License-Identifier: Apache-2.0
"""Takes the screenshots of doc/source/images: ``python -m tests.page.screenshots
[FOLDER]``."""

import base64
import sys
import tempfile
from pathlib import Path

from tests.lab.browser import appear, browser, served
from tests.lab.page_sample import a_site
from tests.lab.pictures import FOLDER, PICTURES, placed, save, words

HOSTS = 5000
REQUESTS = 40


def main(folder):
    """Take all screenshots."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        small = Path(work, 'small')
        small.mkdir()
        texts = words(small)
        page, path = a_site(Path(work), HOSTS, REQUESTS)
        with served(page) as url, browser() as driver:
            for name, (place, query, scheme, height) in PICTURES.items():
                appear(driver, scheme, 1280, height)
                driver.get(f'{url}{place.format(placed=placed(path))}?{query}')
                shot = driver.execute_cdp_cmd(
                    'Page.captureScreenshot', {'format': 'png'}
                )
                picture = folder / f'{name}.png'
                save(base64.b64decode(shot['data']), texts[name], picture)
                print(picture)


if __name__ == '__main__':
    folder = FOLDER
    if sys.argv[1:]:
        folder = Path(sys.argv[1])
    main(folder)
