# SPDX-License-Identifier: Apache-2.0
"""Hosts that can emulate a virtio sound device."""

from __future__ import annotations

import os_traits

from novasched.model.request import Request
from novasched.placement.features import Feature
from novasched.prefilters import Prefilter

SOUND = Feature(
    'sound_model',
    {
        **dict.fromkeys(('sb16', 'es1370', 'pcspk', 'ac97', 'ich6', 'ich9', 'usb')),
        'virtio': os_traits.COMPUTE_SOUND_MODEL_VIRTIO,
    },
)


class VirtioSoundPrefilter(Prefilter):
    """Require the trait where flavor or image choose that device (``sound_model``)."""

    def __call__(self, request: Request) -> Request:
        trait = SOUND.trait(request)
        return self.requiring(request, trait) if trait else request
