# SPDX-License-Identifier: Apache-2.0
"""The way of a plain boot stays short enough to be read in one sitting."""

from tests.lab.boot_path import boot_path

MAX_MODULES, MAX_FUNCTIONS, MAX_DEPTH = 25, 90, 10


def test_a_plain_boot_enters_few_functions(unchecked_scopes):
    """``python -m tests.lab.boot_path`` prints which ones."""
    path = boot_path()
    print(len(path.modules), len(path.functions), path.depth)
    assert len(path.modules) <= MAX_MODULES
    assert len(path.functions) <= MAX_FUNCTIONS
    assert path.depth <= MAX_DEPTH
