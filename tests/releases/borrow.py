# SPDX-License-Identifier: Apache-2.0
"""Let a virtualenv that holds only nova use the libraries of another virtualenv.

    release17/bin/python borrow.py .tox/release19

Neighbouring releases run on the same libraries, so that several releases need one set
of libraries only. Releases from Ocata to Rocky use names that Python and the libraries
have removed since. The script renames these uses in the installed copy. No renamed use
concerns schemas or messages.
"""

from __future__ import annotations

import re
import sys
import sysconfig
from pathlib import Path

RENAMED = {
    r'\.async\b': '.async_',  # a keyword since Python 3.7
    r'\binspect\.getargspec\b': 'inspect.getfullargspec',
    r',\s*retry_on_request=True\b': '',  # oslo.db always retries now
    r',\s*(aliases=)?TRANSPORT_ALIASES\b': '',  # oslo.messaging has its own aliases
    r'\bec\.SECT\w+\(\),': '',  # curves that cryptography has removed
}


def borrow(lender: Path) -> None:
    """Search modules in the lender's library after the library of this virtualenv."""
    own_library = Path(sysconfig.get_path('purelib'))
    lent_library = lender.absolute() / own_library.relative_to(sys.prefix)
    (own_library / 'borrowed.pth').write_text(f'{lent_library}\n')


def rename() -> None:
    """Make the nova of this virtualenv loadable by this Python."""
    nova = Path(sysconfig.get_path('purelib')) / 'nova'
    for source in nova.rglob('*.py'):
        original = source.read_text(encoding='utf-8')

        text = original
        for old, new in RENAMED.items():
            text = re.sub(old, new, text)

        if text != original:
            source.write_text(text, encoding='utf-8')


if __name__ == '__main__':
    borrow(Path(sys.argv[1]))
    rename()
