# SPDX-License-Identifier: Apache-2.0
"""Hosts that can encrypt their own disks of a server."""

from __future__ import annotations

import os_traits

from novasched.model.request import Request
from novasched.placement.features import Feature, flag
from novasched.prefilters import Prefilter

FORMAT = Feature(
    'ephemeral_encryption_format',
    {
        'plain': os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_PLAIN,
        'luks': os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_LUKS,
        'luksv2': os_traits.COMPUTE_EPHEMERAL_ENCRYPTION_LUKSV2,
    },
)


class EphemeralEncryptionPrefilter(Prefilter):
    """Require the traits of encryption, and of its format if flavor or image name one."""

    def __call__(self, request: Request) -> Request:
        if not flag(request, 'ephemeral_encryption'):
            return request
        traits = (os_traits.COMPUTE_EPHEMERAL_ENCRYPTION, FORMAT.trait(request))
        return self.requiring(request, *filter(None, traits))
