# SPDX-License-Identifier: Apache-2.0
"""Questions, their answers, and silence."""

import sys
import threading

from novasched.tools.check.findings import Finding, Level, Question, answers


def a_finding(text):
    return Finding(Level.OK, 'subject', text)


def test_answers():
    """All findings are there in order; silence and failures are errors beside the others."""
    forever = threading.Event()

    def silent():
        yield a_finding('first')
        forever.wait()

    def failing():
        yield a_finding('second')
        raise RuntimeError('unforeseen')

    def leaving():
        sys.exit('enough')

    asked = [Question('subject', ask, area='area') for ask in (silent, failing, leaving)]
    found = answers([*asked, Question('subject', lambda: [a_finding('last')], area='area')], 0.3)
    forever.set()
    assert {each.area for each in found} == {'area'}
    assert [(str(each.level), each.text) for each in found] == [
        ('ok', 'first'),
        ('error', 'no answer within 0.3 s'),
        ('ok', 'second'),
        ('error', 'RuntimeError: unforeseen'),
        ('error', 'SystemExit: enough'),
        ('ok', 'last'),
    ]
