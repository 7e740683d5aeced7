# SPDX-License-Identifier: Apache-2.0
"""Plugins of another package that notice when two requests are in them at once."""

import copy
import threading

from novasched.plugins.nova_compat import import_stubs
from novasched.scheduler.filters import Filter
from novasched.scheduler.weighers import Weigher

WHILE_S = 0.1


class Meeting:
    """Who is in a plugin: everybody stays until a second one comes, or a while has passed."""

    def __init__(self):
        self.forget()

    def forget(self):
        """Let nobody have been there."""
        self.inside = 0
        self.lock = threading.Lock()
        self.somebody_is_in = threading.Event()
        self.two_are_in = threading.Event()

    def take_part(self):
        """Be in the plugin for a while."""
        with self.lock:
            self.inside += 1
            self.somebody_is_in.set()
            if self.inside > 1:
                self.two_are_in.set()
        self.two_are_in.wait(WHILE_S)
        with self.lock:
            self.inside -= 1


MEETING = Meeting()


class NovaStyle(import_stubs.BaseHostFilter):
    """A filter that was written for nova."""

    def filter_all(self, filter_obj_list, spec_obj):
        MEETING.take_part()
        return list(filter_obj_list)


class NovaStyleWeigher(import_stubs.BaseHostWeigher):
    """A weigher that was written for nova."""

    def _weigh_object(self, host_state, weight_properties):
        MEETING.take_part()
        return 1.0


class Ours(Filter):
    """A filter by this package's contract."""

    def reject(self, host, request):
        MEETING.take_part()


class OursPerRequest(Ours):
    """The same, with an object of its own for each request."""

    def for_one_request(self, first):
        return copy.copy(self)


class OursWeigher(Weigher):
    """A weigher by this package's contract."""

    multiplier = 'ram_weight_multiplier'

    def weigh(self, host, request):
        MEETING.take_part()
        return 1.0
