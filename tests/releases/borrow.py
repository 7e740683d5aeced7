# SPDX-License-Identifier: Apache-2.0
"""Let a virtualenv that holds nova alone use the libraries of another one.

    release17/bin/python borrow.py .tox/release19

Releases that are near each other run on the same libraries, so that one set of them is
enough. What those from Ocata to Rocky name by names that Python and the libraries have
given up since is renamed in the copy that is installed here; none of it has to do with
schemas or messages.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

RENAMED = {
    r'\.async\b': '.async_',  # a keyword since Python 3.7
    r'\binspect\.getargspec\b': 'inspect.getfullargspec',
    r',\s*retry_on_request=True\b': '',  # of oslo.db, which now always does
    r',\s*(aliases=)?TRANSPORT_ALIASES\b': '',  # of oslo.messaging, which has its own
    r'\bec\.SECT\w+\(\),': '',  # curves that cryptography no longer has
}


def borrow(lender: Path) -> None:
    """Look for modules in the lender's library after our own."""
    ours = Path(sysconfig.get_path('purelib'))
    theirs = lender.absolute() / ours.relative_to(sys.prefix)
    (ours / 'borrowed.pth').write_text(f'{theirs}\n')


def rename() -> None:
    """Make this virtualenv's nova readable to this Python."""
    for source in (Path(sysconfig.get_path('purelib')) / 'nova').rglob('*.py'):
        text = before = source.read_text(encoding='utf-8')
        for old, new in RENAMED.items():
            text = re.sub(old, new, text)
        if text != before:
            source.write_text(text, encoding='utf-8')


if __name__ == '__main__':
    borrow(Path(sys.argv[1]))
    rename()
