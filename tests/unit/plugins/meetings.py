# SPDX-License-Identifier: Apache-2.0
"""Plugins of another package that notice when two requests are in them at once."""

import contextlib
import copy
import threading

from novasched.plugins.nova_compat import import_stubs
from novasched.scheduler.filters import Filter
from novasched.scheduler.weighers import Weigher

MEETING = threading.Barrier(1)
"""Whoever is in a plugin waits there for the others, if not for long."""


def take_part():
    """Be in the plugin until a second request comes, or a while has passed."""
    with contextlib.suppress(threading.BrokenBarrierError):
        MEETING.wait()


class NovaStyle(import_stubs.BaseHostFilter):
    """A filter that was written for nova."""

    def filter_all(self, filter_obj_list, spec_obj):
        take_part()
        return list(filter_obj_list)


class NovaStyleWeigher(import_stubs.BaseHostWeigher):
    """A weigher that was written for nova."""

    def _weigh_object(self, host_state, weight_properties):
        take_part()
        return 1.0


class Ours(Filter):
    """A filter by this package's contract."""

    def reject(self, host, request):
        take_part()


class OursPerRequest(Ours):
    """The same, with an object of its own for each request."""

    def for_one_request(self, first):
        return copy.copy(self)


class OursWeigher(Weigher):
    """A weigher by this package's contract."""

    multiplier = 'ram_weight_multiplier'

    def weigh(self, host, request):
        take_part()
        return 1.0
