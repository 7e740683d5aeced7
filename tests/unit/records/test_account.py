# SPDX-License-Identifier: Apache-2.0
import gc
import itertools
import weakref

from novasched.records.account import FILTERS, WEIGHERS, Account
from tests.builders import a_host, a_request


def test_nothing_is_left_of_an_account():
    """It goes with all that it knows when nobody wants it any more, not with the next garbage."""
    account = Account(a_request(), 0, itertools.count().__next__)
    look = account.look(account.request, 0)
    look.passed('RamFilter', [a_host()], {}, 1)
    look.did(FILTERS)
    look.did(WEIGHERS)
    known = weakref.ref(look)
    gc.disable()
    try:
        del account, look
        assert known() is None
    finally:
        gc.enable()
