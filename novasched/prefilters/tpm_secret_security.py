# SPDX-License-Identifier: Apache-2.0
"""Hosts that can keep the secret of an emulated TPM as the flavor demands."""

from __future__ import annotations

import os_traits

from novasched.errors import NoValidHost
from novasched.model.request import Request
from novasched.placement.features import TPM_VERSION
from novasched.prefilters import LOG, Prefilter

TRAITS = {
    'user': os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_USER,
    'host': os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_HOST,
    'deployment': os_traits.COMPUTE_SECURITY_TPM_SECRET_SECURITY_DEPLOYMENT,
}


class TpmSecretSecurityPrefilter(Prefilter):
    """Require the trait of ``hw:tpm_secret_security``, by default ``user``, for a server
    with a TPM."""

    def __call__(self, request: Request) -> Request:
        if TPM_VERSION.value(request) is None:
            return request
        wanted = request.flavor.extra_specs.get('hw:tpm_secret_security') or 'user'
        if wanted not in TRAITS:
            why = f"TPM secret security '{wanted}' is not supported."
            LOG.warning(why)
            raise NoValidHost(f'Scheduling failed: {why}')
        return self.requiring(request, TRAITS[wanted])
