# SPDX-License-Identifier: Apache-2.0
"""A headless browser, and a server of the page."""

import threading
from contextlib import contextmanager
from wsgiref.simple_server import WSGIRequestHandler, make_server

from selenium import webdriver
from selenium.webdriver.chrome.service import Service

from tests.lab.processes import program

FLAGS = (
    '--headless=new',
    '--no-sandbox',
    '--disable-gpu',
    '--disable-dev-shm-usage',
    '--hide-scrollbars',
)


class _Quiet(WSGIRequestHandler):
    def log_message(self, format, *args):
        """Print nothing."""


@contextmanager
def served(app):
    """Serve a WSGI application in a block; its URL."""
    with make_server('127.0.0.1', 0, app, handler_class=_Quiet) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield f'http://127.0.0.1:{server.server_port}'
        finally:
            server.shutdown()


@contextmanager
def browser():
    """Chromium; Debian's packages are installed if they are missing."""
    options = webdriver.ChromeOptions()
    options.binary_location = program('chromium', 'chromium')
    for flag in FLAGS:
        options.add_argument(flag)
    driver = webdriver.Chrome(
        options, Service(program('chromium-driver', 'chromedriver'))
    )
    try:
        yield driver
    finally:
        driver.quit()


def appear(driver, scheme, width, height=900):
    """Set the preferred colour scheme, light or dark, and the size of the window."""
    media = {'features': [{'name': 'prefers-color-scheme', 'value': scheme}]}
    driver.execute_cdp_cmd('Emulation.setEmulatedMedia', media)
    size = {
        'width': width,
        'height': height,
        'deviceScaleFactor': 1,
        'mobile': width < 600,
    }
    driver.execute_cdp_cmd('Emulation.setDeviceMetricsOverride', size)
