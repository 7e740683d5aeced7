# SPDX-License-Identifier: Apache-2.0
"""A filter and a weigher for nova-scheduler, which novasched runs unchanged."""

from nova.scheduler import filters, utils, weights


# [filter]
class WindowsLicenseFilter(filters.BaseHostFilter):
    """Place Windows on hosts of aggregates with ``windows_licensed=true``."""

    RUN_ON_REBUILD = False
    run_filter_once_per_request = True

    def host_passes(self, host_state, spec_obj):
        image = spec_obj.image
        if not image or image.properties.get('os_type') != 'windows':
            return True
        for aggregate in host_state.aggregates:
            if aggregate.metadata.get('windows_licensed') == 'true':
                return True
        return False


# [weigher]
class PowerWeigher(weights.BaseHostWeigher):
    """Prefer hosts of aggregates with less power for a vCPU (``watts_per_vcpu``)."""

    def weight_multiplier(self, host_state):
        return utils.get_weight_multiplier(host_state, 'power_weight_multiplier', 1.0)

    def _weigh_object(self, host_state, weight_properties):
        watts = []
        for aggregate in host_state.aggregates:
            if 'watts_per_vcpu' in aggregate.metadata:
                watts.append(float(aggregate.metadata['watts_per_vcpu']))
        return -min(watts, default=100.0)
