# SPDX-License-Identifier: Apache-2.0
import re
import shutil
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote, urljoin, urlsplit

import pytest

from novasched.conf.settings import Settings
from novasched.observe.page.app import NO_FILE, NO_RECORD, UNREADABLE
from novasched.observe.records.record import Diagnosis, ReasonCount, RejectionStage
from novasched.observe.records.store import RecordWriter
from novasched.scheduler.errors import DatabaseUnavailable
from novasched.scheduler.model.host import Aggregate
from tests.lab.builders import a_flavor, a_host, a_request
from tests.lab.decision_records import RecordedScheduler, record_of
from tests.lab.page_sample import (
    Cells,
    a_page,
    a_site,
    ask,
    ask_raw,
    cloud,
    decided,
    seen,
)

EVIL = "\"><evil a='b'>&amp;{{ 7777*7777 }}"


@pytest.fixture(scope='module')
def site(tmp_path_factory):
    return a_site(tmp_path_factory.mktemp('page'), 60, 20)


@pytest.fixture
def page(site):
    return site[0]


@pytest.fixture
def decisions(site):
    """A file of decisions over the hosts of the sample."""
    return site[1]


def links(answer):
    return [link['href'] for link in seen(answer).all('a')]


def test_every_link_leads_to_a_page(page):
    """Every link leads to a page with a single heading and the landmarks. The links
    reach every page and every choice of resource, grouping and form."""
    todo = {('/', '')}
    done = set()
    while todo:
        path, query = todo.pop()
        done.add((path, query))
        answer = ask_raw(page, path, query)
        assert answer.status == 200, (path, query)
        if not answer.headers['Content-Type'].startswith('text/html'):
            continue

        document = seen(answer)
        assert len(document.all('h1')) == 1
        for landmark in ('main', 'header', 'footer', 'nav'):
            assert document.all(landmark)
        ids = {attributes.get('id') for _, attributes in document.elements}
        for link in links(answer):
            if link.startswith('#'):
                assert link[1:] in ids
                continue
            target = urlsplit(urljoin(path, link))
            todo |= {(target.path, target.query)} - done

    assert ('/', 'show=pinned&by=aggregate&form=table') in done
    assert any(path.startswith('/hosts/') for path, _ in done)
    assert any(path.startswith('/decisions/') for path, _ in done)


def decision_links(page):
    """The links to single decisions."""
    targets = links(ask(page, '/decisions'))
    return [target for target in targets if 'decisions/' in target]


def test_a_decision_is_found_by_instance_and_by_request(page):
    first = decision_links(page)[0]
    answer = ask(page, first[1:], 'host=compute-04')
    text = seen(answer).text
    server = re.search(r'servers ([0-9a-f-]{36})', text).group(1)
    request = re.search(r'request (req-[0-9a-f-]{36})', text).group(1)
    for wanted in (server, request):
        assert first in links(ask(page, '/decisions', f'q={wanted}'))
    assert 'Every host, counted once' in text
    assert re.search(r'compute-04\s*: ', text)


BAD = {
    404: [
        '/nothing',
        '/hosts/',
        '/hosts/compute-61',
        '/decisions/nothing',
        '/decisions?page=9',
        '/?page=2',
        '/../novasched/page/app.py',
        '/%00',
        '/%ff',
        '/hosts/' + 'a' * 2000,
        '/hosts/%0d%0aevil',
        '/<evil>',
    ],
    400: ['/hosts/compute-01?a=b', '/?show=<evil>', '/?' + 'a' * 5000],
}


def bad_input_cases():
    for status, paths in BAD.items():
        for path in paths:
            yield status, path


@pytest.mark.parametrize(('status', 'path'), [*bad_input_cases()])
def test_bad_input_gets_an_error_that_does_not_repeat_the_input(page, status, path):
    """The error is a line without any part of the request."""
    answer = ask_raw(page, *path.partition('?')[::2])
    assert answer.status == status
    assert 'evil' not in answer.text
    assert len(answer.text) < 500
    assert len(seen(answer).all('p')) == 1


@pytest.mark.parametrize(
    ('remote', 'environ', 'status'),
    [
        (False, {'REMOTE_ADDR': '10.0.0.1'}, 403),
        (False, {'HTTP_HOST': 'evil.example.org'}, 403),
        (False, {'REMOTE_ADDR': '::1'}, 200),
        (True, {'REMOTE_ADDR': '10.0.0.1', 'HTTP_HOST': 'evil.example.org'}, 200),
    ],
)
def test_other_machines_are_refused_unless_page_remote_is_set(
    decisions, remote, environ, status
):
    """Only this machine may read the page unless page_remote is set. With page_remote
    any Host header is accepted, and the page does not repeat the header."""
    answer = ask(a_page(Cells(cloud(5)), decisions, remote, timeout=60.0), **environ)
    assert answer.status == status
    assert 'evil' not in answer.text


@pytest.mark.parametrize(
    'path',
    ['/', '/decisions', '/hosts/compute-01', '/page.css', '/icon.svg', '/nothing'],
)
def test_headers_forbid_framing_caching_and_foreign_content(page, path):
    """The headers forbid sniffing, framing, caching and requests to foreign sites."""
    answer = ask(page, path)
    policy = answer.headers['Content-Security-Policy']
    assert "default-src 'none'" in policy
    assert 'unsafe' not in policy
    assert answer.headers['X-Content-Type-Options'] == 'nosniff'
    assert answer.headers['Cache-Control'] == 'no-store'
    assert 'Set-Cookie' not in answer.headers
    if answer.headers['Content-Type'].startswith('text/html'):
        for tag, attributes in seen(answer).elements:
            assert tag not in ('script', 'style', 'iframe', 'img')
            assert 'style' not in attributes
            for name in attributes:
                assert not name.startswith('on')
            for name in ('href', 'src', 'action'):
                assert not re.match(r'\w+:|//', attributes.get(name) or '')
    elif path == '/page.css':
        assert 'url(' not in answer.text
        assert '@import' not in answer.text


def test_names_with_markup_are_escaped(tmp_path):
    """Names of hosts, cells, zones and aggregates are escaped."""
    aggregates = (Aggregate(1, None, EVIL, {'availability_zone': EVIL}),)
    host = replace(
        a_host(EVIL, disabled=True, why=EVIL, hypervisor_type=EVIL),
        aggregates=aggregates,
    )
    fit = replace(a_host('fit'), aggregates=aggregates)
    decided(tmp_path / 'decisions', [host, fit], 5)
    page = a_page(Cells({EVIL: [host, fit]}), tmp_path / 'decisions', timeout=60.0)
    queries = (
        '',
        'by=zone',
        'by=aggregate&form=table',
        'name=<evil>',
        'within="><evil>',
    )
    answers = [ask(page, '/', quote(query, safe='=&')) for query in queries]
    answers += [ask(page, f'/hosts/{EVIL}'), ask(page, '/decisions', 'q=%3Cevil%3E')]
    for link in decision_links(page):
        answers.append(ask(page, link[1:], 'host=%3Cevil%3E'))

    for answer in answers:
        assert answer.status == 200
        assert not seen(answer).all('evil')
        assert str(7777 * 7777) not in seen(answer).text
    assert EVIL in seen(answers[0]).text
    assert EVIL in seen(answers[5]).text


def test_the_page_says_that_hosts_or_databases_are_missing(decisions):
    """Without hosts or databases the page says so, and lists the decisions."""
    for hosts in ({}, {'north': []}):
        page = a_page(Cells(hosts), decisions, timeout=60.0)
        for query in ('', 'form=table', 'show=pinned&by=zone'):
            answer = ask(page, '/', query)
            assert answer.status == 200
            assert 'There are no such hosts' in answer.text

    cells = Cells(cloud(5))
    cells.error = DatabaseUnavailable('mysql://nova:sesame@db')
    page = a_page(cells, decisions, max_age=0.0, timeout=60.0)
    for path in ('/', '/hosts/compute-1'):
        answer = ask(page, path)
        assert answer.status == 503
        assert 'The databases do not answer' in seen(answer).text
        assert 'sesame' not in answer.text
    assert ask(page, '/decisions').status == 200


@pytest.mark.parametrize(
    ('path', 'notice', 'status'),
    [
        (None, NO_FILE, 404),
        ('/nowhere/decisions', NO_RECORD, 404),
        (__file__, UNREADABLE, 503),
    ],
)
def test_the_page_gives_the_reason_for_missing_decisions(path, notice, status):
    """The page says why there is no decision, and how to change that."""
    page = a_page(Cells(cloud(5)), Path(path) if path else None, timeout=60.0)
    places = ('/decisions', 200), ('/hosts/compute-1', 200), ('/decisions/x', status)
    for where, expected in places:
        answer = ask(page, where)
        assert (answer.status, notice in seen(answer).text) == (expected, True)
        assert '/nowhere' not in answer.text


def test_a_damaged_record_is_skipped(decisions, tmp_path):
    """The page lists the other decisions, and says that a record is damaged."""
    path = tmp_path / 'decisions'
    shutil.copy(decisions, path)
    with closing(sqlite3.connect(path)) as base, base:
        (number,) = base.execute('select max(number) from decisions').fetchone()
        base.execute("update decisions set record = 'x' where number = ?", (number,))
    page = a_page(Cells(cloud(5)), path, timeout=60.0)

    answer = ask(page, '/decisions')

    assert answer.status == 200
    assert 'A damaged decision record was skipped.' in seen(answer).text
    assert decision_links(page)


def test_pages_of_ten_thousand_hosts_have_a_bounded_size(decisions):
    """The page has a bounded size, and each section is small."""
    page = a_page(Cells(cloud(10_000)), decisions, timeout=60.0)
    map = ask(page, '/', 'show=pinned&by=aggregate')
    table = ask(page, '/', 'form=table&page=50')
    assert len(map.text) < 2_000_000
    assert len(table.text) < 250_000
    assert 'compute-10000' in table.text
    links = re.findall('<a [^>]*>', map.text)
    assert len([link for link in links if 'href="./hosts/' in link]) == 10_000
    assert len([link for link in links if 'tabindex="-1"' not in link]) < 250


FEW = [
    a_host('small', ram=600),
    a_host('off', disabled=True, why='rack 4'),
    a_host('large', ram=9000),
]
SETTINGS = Settings(enabled_filters=('ComputeFilter', 'RamFilter', 'DiskFilter'))


@pytest.fixture
def text_of(tmp_path):
    def words(diagnosis=None, **request):
        record = record_of(
            RecordedScheduler(FEW, settings=SETTINGS).ask(a_request(**request))
        )
        record = replace(record, diagnosis=diagnosis)
        writer = RecordWriter(str(tmp_path / 'decisions'), 10, 1)
        writer.write(record)
        writer.close()
        return seen(
            ask(a_page(Cells({}), tmp_path / 'decisions'), f'/decisions/{record.id}')
        ).text

    return words


def test_the_page_of_a_placement_counts_each_host_once(text_of):
    """The page of a placement has the headline, each host counted once, the facts of
    the command, the rejecting filters with their reasons, the idle filters, and the
    chosen host."""
    text = text_of(flavor=a_flavor(name='m1', memory_mb=700), availability_zone='south')
    for words in (
        'large: 1 of 3 hosts fit, 1 disabled, 1 lack free memory placed large',
        'also zone south', '1 disabled', '1 lack free memory', '1 fit',
        'For the server: 1 of 3 hosts passed',
        'ComputeFilter 3 2 1: disabled, reason: rack 4',
        'RamFilter 2 1 1: 600 MiB of memory before overcommit, 700 wanted',
        'None dropped by DiskFilter.',
        'large chosen',
    ):  # fmt: skip
        assert words in text


def test_hosts_not_offered_by_placement_have_a_table_of_lacks(text_of):
    """Hosts that Placement did not offer have a table of their own, by their first
    lack."""
    causes = (ReasonCount('2 VCPU, in use or reserved', 4), ReasonCount('2 VCPU', 1))
    lacking = (
        RejectionStage('in another zone', 7, 5),
        RejectionStage('lack VCPU', 5, 0, causes),
    )
    text = text_of(
        Diagnosis(queries=2, lacking=lacking), flavor=a_flavor(memory_mb=99_999)
    )
    for words in (
        '0 of 10 hosts: 5 lack VCPU, 2 in another zone, 2 lack free memory, 1 disabled',
        'in another zone 7 5',
        'lack VCPU 5 0 4: 2 VCPU, in use or reserved 1: 2 VCPU',
    ):
        assert words in text


def test_the_first_instances_of_a_request_have_sections(text_of):
    """Each server has a section and a host. The deciding attempt comes first. Of many
    servers the first few are shown, with the number of the rest."""
    text = text_of(count=2, flavor=a_flavor(memory_mb=550))
    first = text.index('For server 1 of 2: 2 of 3 hosts passed')
    second = text.index('For server 2 of 2: 2 of 2 hosts passed')
    assert first < text.index('large chosen') < second < text.index('small chosen')
    text = text_of(count=20, flavor=a_flavor(memory_mb=4000))
    assert text.index('For server 3 of 20: 0 of 1 hosts passed') < text.index(
        'For server 1 of 20'
    )
    assert 'and 17 others' in text
    assert 'more servers of this request' not in text
    text = text_of(count=15, flavor=a_flavor(memory_mb=1, root_gb=0))
    assert text.count('For server ') == 11
    assert '4 more servers of this request are in novaschedctl explain' in text
