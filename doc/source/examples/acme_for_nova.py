# SPDX-License-Identifier: Apache-2.0
"""A filter and a weigher for nova-scheduler, which novasched runs as they are."""

from nova.scheduler import filters, utils, weights


# [filter]
class WindowsLicenseFilter(filters.BaseHostFilter):
    """Windows goes to hosts of aggregates whose metadata says
    ``windows_licensed=true``."""

    RUN_ON_REBUILD = False
    run_filter_once_per_request = True

    def host_passes(self, host_state, spec_obj):
        if not spec_obj.image or spec_obj.image.properties.get('os_type') != 'windows':
            return True
        values = [
            each.metadata.get('windows_licensed') for each in host_state.aggregates
        ]
        return 'true' in values


# [weigher]
class PowerWeigher(weights.BaseHostWeigher):
    """Prefer hosts of aggregates whose metadata says that they need less power for a
    vCPU."""

    def weight_multiplier(self, host_state):
        return utils.get_weight_multiplier(host_state, 'power_weight_multiplier', 1.0)

    def _weigh_object(self, host_state, weight_properties):
        watts = [
            float(each.metadata['watts_per_vcpu'])
            for each in host_state.aggregates
            if 'watts_per_vcpu' in each.metadata
        ]
        return -min(watts, default=100.0)
