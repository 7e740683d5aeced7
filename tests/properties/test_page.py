# SPDX-License-Identifier: Apache-2.0
"""The page answers every request with a page."""

import re
from urllib.parse import quote, urlencode

from hypothesis import example, given
from hypothesis import strategies as st

from tests.lab.page_sample import Cells, a_page, ask_raw, cloud, seen

MARKUP = (
    '<evil>', '"><evil evil="', "' evil='", '&lt;evil&gt;', '{{evil}}', '{% evil %}',
    '\r\nevil: evil', '\x00', '..', '%', '\u202eevil',
)  # fmt: skip
PAGE = a_page(Cells(cloud(12)), None, timeout=60.0)
TAGS = {
    'a',
    'body',
    'button',
    'caption',
    'dd',
    'div',
    'dl',
    'dt',
    'footer',
    'form',
    'h1',
    'h2',
    'h3',
    'head',
    'header',
    'html',
    'i',
    'input',
    'label',
    'li',
    'link',
    'main',
    'meta',
    'nav',
    'ol',
    'option',
    'p',
    'rect',
    'section',
    'select',
    'span',
    'strong',
    'svg',
    'table',
    'tbody',
    'td',
    'th',
    'thead',
    'title',
    'tr',
    'ul',
}
"""The elements of the templates."""

PLACES = ['/', '/hosts/', '/decisions/', '/decisions', '/hosts/compute-03']
NAMES = [
    'show',
    'by',
    'within',
    'state',
    'name',
    'order',
    'form',
    'page',
    'q',
    'host',
    'evil',
]
VALUES = ['ram', 'pinned', 'zone', 'aggregate', 'table', '1', '2', '-1', 'down', '']

texts = st.lists(st.sampled_from(MARKUP) | st.text(max_size=20), max_size=4).map(
    ''.join
)
quoted = texts.map(lambda text: text.encode(errors='surrogatepass')).map(quote)
paths = (
    st.builds('{}{}'.format, st.sampled_from(PLACES), quoted)
    | st.binary(max_size=40).map(lambda raw: '/' + quote(raw))
    | st.just('')
)
pairs = st.tuples(st.sampled_from(NAMES), texts | st.sampled_from(VALUES))
queries = st.lists(pairs, max_size=4).map(
    lambda asked: urlencode(asked, errors='surrogatepass')
) | st.binary(max_size=60).map(lambda raw: raw.decode('latin-1'))


@given(paths, queries)
@example('/', 'name=%3Cevil%3E')
@example('/', 'within=%22%3E%3Cevil+evil%3D%22')
@example('/hosts/%3Cevil%3E', '')
@example('/decisions', 'q=%3Cevil%3E')
def test_any_page_request_is_answered_without_foreign_markup(path, query):
    """The answer is well-formed, has the elements and attributes of the templates
    alone, and is no internal error."""
    answer = ask_raw(PAGE, path, query)
    assert answer.status < 500
    assert answer.headers['X-Content-Type-Options'] == 'nosniff'
    if not answer.headers['Content-Type'].startswith('text/html'):
        return
    found = seen(answer)
    assert {tag for tag, _ in found.elements} <= TAGS
    for _, attributes in found.elements:
        assert not [name for name in attributes if re.match('evil|on|style|src$', name)]
        assert not re.match(r'\s*\w+:', attributes.get('href') or '')
