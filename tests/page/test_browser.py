# SPDX-License-Identifier: Apache-2.0
"""The page in a browser: accessibility, keyboards, small screens and forms."""

import pytest
from axe_selenium_python import Axe
from selenium.webdriver.common.action_chains import ActionChains
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.expected_conditions import url_contains
from selenium.webdriver.support.wait import WebDriverWait

from novasched.observe.records.store import RecordReader
from tests.lab.browser import appear, browser, served
from tests.lab.page_sample import a_site

DESKTOP = 1280
PHONE = 390
WAIT = 30.0
PAGES = {
    'map': '/',
    'pinned': '/?show=pinned&by=zone',
    'table': '/?form=table&order=fullest',
    'chosen': '/?by=aggregate&within=rack-01&state=disabled',
    'nothing': '/?name=nobody',
    'host': '/hosts/compute-002',
    'decisions': '/decisions',
    'room': '/room',
    'decision': '/decisions/{placed}?host=compute-007',
    'refusal': '/decisions/{refused}',
    'error': '/decisions/nothing',
}


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    """The URL of a page, and the IDs of a placed and of a refused decision."""
    page, path = a_site(tmp_path_factory.mktemp('page'), 300, 30)
    records = RecordReader(str(path)).newest(30)
    placed = [record.id for record in records if record.result.hosts]
    refused = [record.id for record in records if not record.result.hosts]
    ids = {'placed': placed[0], 'refused': refused[0]}
    with served(page) as url:
        yield url, ids


@pytest.fixture(scope='module')
def chromium():
    """A browser."""
    with browser() as driver:
        yield driver


@pytest.fixture(params=PAGES)
def path(request, site):
    """Each page in turn."""
    url, ids = site
    return url + PAGES[request.param].format(**ids)


def arrived(driver, place):
    """Wait until the browser shows a page."""
    WebDriverWait(driver, WAIT).until(url_contains(place))


def test_axe_finds_no_accessibility_fault(chromium, path):
    """axe finds no fault in names, landmarks, headings, tables and contrast, in both
    colour schemes."""
    for scheme in ('light', 'dark'):
        appear(chromium, scheme, DESKTOP)
        chromium.get(path)
        axe = Axe(chromium)
        axe.inject()

        report = axe.run(
            options={'runOnly': ['wcag2a', 'wcag2aa', 'wcag21aa', 'best-practice']}
        )

        faults = []
        for violation in report['violations']:
            for node in violation['nodes']:
                faults.append(f'{violation["id"]}: {node["html"]}')
        assert faults == [], scheme
    assert chromium.get_log('browser') == [] or path.endswith('nothing')


def test_no_page_is_wider_than_a_phone(chromium, path):
    """No page is wider than a phone. A table scrolls by itself."""
    appear(chromium, 'light', PHONE)
    chromium.get(path)

    page_width, window_width = chromium.execute_script(
        'return [document.scrollingElement.scrollWidth, window.innerWidth]'
    )

    assert page_width <= window_width == PHONE


def test_a_keyboard_skips_navigation_and_reaches_visible_stops(chromium, site):
    """The first key skips the navigation. All stops are visible, and the squares of the
    map are not stops."""
    appear(chromium, 'light', DESKTOP)
    chromium.get(f'{site[0]}/?name=compute-1')
    keys = ActionChains(chromium)

    keys.send_keys(Keys.TAB).perform()
    skip = chromium.switch_to.active_element
    assert skip.text == 'Skip to the content'
    assert skip.rect['y'] >= 0
    skip.send_keys(Keys.ENTER)
    assert chromium.switch_to.active_element.get_attribute('id') == 'main'

    stops = []
    for _ in range(40):
        keys.send_keys(Keys.TAB).perform()
        stop = chromium.switch_to.active_element
        if stop.tag_name == 'body':
            break
        outline = stop.value_of_css_property('outline-style')
        assert outline not in ('none', 'hidden'), stop.get_attribute('outerHTML')
        stops.append(stop.get_attribute('name') or stop.text)

    for name in (
        'vCPUs',
        'Zone',
        'Table',
        'name',
        'state',
        'Show',
        'The same as a table',
    ):
        assert name in stops
    assert len(stops) < 30
    assert len(chromium.find_elements(By.CSS_SELECTOR, '.map a')) == 100


def test_forms_work_without_scripts(chromium, site):
    """Forms work without scripts: the page shows the typed values."""
    url, ids = site

    def text_of(selector):
        return chromium.find_element(By.CSS_SELECTOR, selector).text

    # Filter the map by name.
    chromium.get(f'{url}/?show=disk&by=zone')
    chromium.find_element(By.NAME, 'name').send_keys('compute-00', Keys.ENTER)
    arrived(chromium, 'name=compute-00')
    assert text_of('[aria-current="true"]') == 'Disk'
    assert '9 hosts' in text_of('.summary')

    # Open the page of a host from the map.
    chromium.find_element(By.CSS_SELECTOR, '.map a').click()
    arrived(chromium, '/hosts/compute-00')
    assert chromium.find_element(By.TAG_NAME, 'h1').text.startswith('compute-00')

    # Ask a decision about a host.
    chromium.get(f'{url}/decisions/{ids["refused"]}')
    chromium.find_element(By.NAME, 'host').send_keys('compute-007', Keys.ENTER)
    arrived(chromium, 'host=compute-007')
    assert text_of('.why').startswith('compute-007: ')
