# SPDX-License-Identifier: Apache-2.0
"""Hosts whose nova-compute knows accelerators."""

from __future__ import annotations

import os_traits

from novasched.model.request import Request
from novasched.prefilters import Prefilter


class AcceleratorsPrefilter(Prefilter):
    """Require the trait where the flavor has a device profile (``accel:device_profile``)."""

    def __call__(self, request: Request) -> Request:
        if not request.flavor.extra_specs.get('accel:device_profile'):
            return request
        return self.requiring(request, os_traits.COMPUTE_ACCELERATORS)
