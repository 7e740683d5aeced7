# SPDX-License-Identifier: Apache-2.0
"""Makes the pictures of doc/source/images: ``python -m tests.page.screenshots [FOLDER]``."""

from __future__ import annotations

import base64
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from selenium import webdriver

from novasched.observe.records import render
from novasched.observe.records.store import RecordReader
from tests.lab.browser import appear, browser, served
from tests.lab.page_sample import a_site

HOSTS, REQUESTS = 5000, 40
FOLDER = Path(__file__).parents[2] / 'doc' / 'source' / 'images'


@dataclass(frozen=True)
class Picture:
    """A picture of a path, as somebody sees it."""

    name: str
    path: str
    scheme: str = 'light'
    width: int = 1280
    height: int = 900


def pictures(decision: str) -> Iterator[Picture]:
    """Those of the documentation."""
    yield Picture('page-hosts', '/')
    yield Picture('page-pinned-dark', '/?show=pinned&by=zone', 'dark')
    yield Picture('page-decision', f'/decisions/{decision}?host=compute-0007', height=1000)


def placed(path: Path) -> str:
    """The newest decision that found a host for one server, after filters that dropped some."""
    records = RecordReader(str(path)).newest(REQUESTS)
    return next(
        each.id for each in records if len(each.result.hosts) == 1 and len(render.tally(each)) > 3
    )


def take(driver: webdriver.Chrome, url: str, picture: Picture, folder: Path) -> Path:
    """Take one."""
    appear(driver, picture.scheme, picture.width, picture.height)
    driver.get(url + picture.path)
    shot = driver.execute_cdp_cmd('Page.captureScreenshot', {'format': 'png'})
    path = folder / f'{picture.name}.png'
    path.write_bytes(base64.b64decode(shot['data']))
    return path


def main(folder: Path) -> None:
    """Take all of them."""
    folder.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory() as work:
        page, path = a_site(Path(work), HOSTS, REQUESTS)
        with served(page) as url, browser() as driver:
            for picture in pictures(placed(path)):
                print(take(driver, url, picture, folder))


if __name__ == '__main__':
    main(Path(sys.argv[1]) if sys.argv[1:] else FOLDER)
