# SPDX-License-Identifier: Apache-2.0
"""Hosts that can pack virtio rings."""

from __future__ import annotations

import os_traits

from novasched.model.request import Request
from novasched.placement.features import flag
from novasched.prefilters import Prefilter


class PackedVirtqueuePrefilter(Prefilter):
    """Require the trait where flavor or image ask for it (``virtio_packed_ring``)."""

    def __call__(self, request: Request) -> Request:
        if not flag(request, 'virtio_packed_ring'):
            return request
        return self.requiring(request, os_traits.COMPUTE_NET_VIRTIO_PACKED)
