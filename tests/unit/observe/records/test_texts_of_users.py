# SPDX-License-Identifier: Apache-2.0
"""Texts of users reach no terminal as a command, and secrets of users reach no
record."""

import io
import logging
from contextlib import closing
from dataclasses import replace

import pytest
from oslo_config import cfg
from oslo_log import formatters
from oslo_log import log as oslo_logging

from novasched.cmd import novaschedctl
from novasched.conf.logs import Hiding
from novasched.conf.redaction import one_line
from novasched.observe.records.from_decision import kept_request, rejections_of
from novasched.observe.records.record import Record, to_json
from novasched.observe.records.store import RecordWriter
from novasched.rpc.server import Serializer
from novasched.scheduler.errors import BadRequest
from novasched.scheduler.model.image_properties import SECRET_PROPERTIES
from tests.lab.builders import a_host, a_request
from tests.lab.decision_records import RecordedScheduler, record_of

TITLE = '\x1b]0;evil\x07'
RIGHT_TO_LEFT = '\u202eevil'
BACK = 'evil\r\x08\x9b2J'
EVIL = (TITLE, RIGHT_TO_LEFT, BACK)


def is_printed(text):
    return all(line.isprintable() for line in text.split('\n'))


@pytest.mark.parametrize('evil', EVIL)
def test_unprintable_characters_of_a_line_are_escaped(evil):
    """Unprintable characters are escaped."""
    line = one_line(f'a {evil}\n b')
    assert line.isprintable()
    assert 'evil' in line
    assert line.startswith('a ')
    assert line.endswith(' b')


@pytest.mark.parametrize('evil', EVIL)
def test_records_are_printed_without_control_characters(evil, tmp_path, capsys):
    """No text of a record reaches a terminal as a command."""
    asked = a_request(
        hints={evil: [evil], 'query': [evil]},
        image={evil: evil},
        availability_zone=evil,
    )
    asked = replace(
        asked, flavor=replace(asked.flavor, name=evil, extra_specs={evil: evil})
    )
    decision = RecordedScheduler([a_host('h1')]).ask(asked)
    path = str(tmp_path / 'records')
    with closing(RecordWriter(path, 10, 10)) as writer:
        writer.write(record_of(decision), rejections_of(decision))
    for more in ([], ['--host', 'h1'], ['--format', 'json']):
        assert novaschedctl.main(['explain', '--last', '--file', path, *more]) == 0
        text = capsys.readouterr().out
        assert 'h1' in text
        assert is_printed(text)


@pytest.mark.parametrize('evil', EVIL)
def test_texts_of_users_in_log_lines_are_escaped(evil):
    """Arguments of log lines, messages of libraries, and names in the caller's context
    are escaped."""
    conf = cfg.ConfigOpts()
    oslo_logging.register_options(conf)
    conf(['--config-file=/dev/null'])
    colour = '\x1b[01;36m'
    conf.set_override(
        'logging_context_format_string', f'{colour}%(user_name)s %(message)s'
    )
    output = io.StringIO()
    handler = logging.StreamHandler(output)
    handler.setFormatter(Hiding(formatters.ContextFormatter(config=conf)))
    Serializer().deserialize_context({'user_name': evil, 'request_id': 'req-1'})
    for logger in ('nova.filters', 'novasched', 'oslo.messaging'):
        for args in ((evil,), (BadRequest(evil),), (ValueError(f'{evil}\nnext'),)):
            handler.handle(
                logging.LogRecord(logger, logging.INFO, '', 1, 'it is %s', args, None)
            )
    text = output.getvalue()
    assert text.count(colour) == text.count('it is') == 9
    assert is_printed(text.replace(colour, ''))


@pytest.mark.parametrize('name', sorted(SECRET_PROPERTIES))
@pytest.mark.parametrize('others', [{}, {'traits_required': ['X']}])
def test_secret_image_properties_are_left_out_of_records(name, others):
    """A secret property is in no record, and the request can be repeated without it."""
    request, missing_fields = kept_request(
        a_request(image={name: 'the-secret', 'hw_x': 'y', **others})
    )
    assert missing_fields == ()
    assert request == a_request(image={'hw_x': 'y', **others})
    record = Record('id', 0.0, 1, None, None, request)
    assert b'the-secret' not in to_json(record)
