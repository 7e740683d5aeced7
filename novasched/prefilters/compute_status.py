# SPDX-License-Identifier: Apache-2.0
"""Disabled compute services are left out by Placement itself."""

from __future__ import annotations

import os_traits

from novasched.model.request import Request
from novasched.prefilters import Prefilter


class ComputeStatusPrefilter(Prefilter):
    """Forbid the trait that nova-compute sets on the provider of a disabled service."""

    def __call__(self, request: Request) -> Request:
        return self.forbidding(request, os_traits.COMPUTE_STATUS_DISABLED)
