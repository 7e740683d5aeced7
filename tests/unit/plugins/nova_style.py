# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers written for nova, which tests load by import path."""

import nova.conf
from nova import objects
from nova.i18n import _
from nova.scheduler import filters, utils, weights
from nova.scheduler.filters import utils as filter_utils
from oslo_config import cfg

CONF = nova.conf.CONF
CONF.register_opts([cfg.StrOpt('rack', default='any')], 'acme')


class RackFilter(filters.BaseHostFilter):
    """Passes hosts in the rack of the hint or of the configuration."""

    run_filter_once_per_request = True

    def host_passes(self, host_state, spec_obj):
        rack = spec_obj.get_scheduler_hint('rack', CONF.acme.rack)
        racks = filter_utils.aggregate_values_from_key(host_state, 'rack')
        return rack == 'any' or rack in racks


class SureFilter(RackFilter):
    """RackFilter that also runs on a rebuild."""

    RUN_ON_REBUILD = True


class UndeclaredFilter(filters.BaseHostFilter):
    """Reads an option that is not declared."""

    def host_passes(self, host_state, spec_obj):
        return CONF.acme.shelf == 'any'


class QuietestFilter(filters.BaseHostFilter):
    """Passes the hosts with the fewest instances."""

    def filter_all(self, filter_obj_list, spec_obj):
        least = min(host.num_instances for host in filter_obj_list)
        return [host for host in filter_obj_list if host.num_instances == least]


class EvenFilter(filters.BaseHostFilter):
    """Rejects every host for every second instance."""

    def run_filter_for_index(self, index):
        return index % 2 == 1

    def host_passes(self, host_state, spec_obj):
        return False


class NeighbourFilter(filters.BaseHostFilter):
    """Passes hosts with an instance of the project, for requests with a hint."""

    def host_passes(self, host_state, spec_obj):
        if not spec_obj.get_scheduler_hint('neighbour'):
            return True
        instances = host_state.instances.values()
        return spec_obj.project_id in [instance.project_id for instance in instances]


class LimitFilter(filters.BaseHostFilter):
    """Sets limits for nova-compute."""

    def host_passes(self, host_state, spec_obj):
        host_state.limits['memory_mb'] = host_state.total_usable_ram_mb * 1.5
        host_state.limits['unheard_of'] = 1
        return True


class TextLimitFilter(filters.BaseHostFilter):
    """Sets a limit that is not a number."""

    def host_passes(self, host_state, spec_obj):
        host_state.limits['memory_mb'] = 'plenty'
        return True


class WideCandidateFilter(filters.BaseHostFilter):
    """Drops the candidates with one provider from hosts with several instances."""

    def host_passes(self, host_state, spec_obj):
        if host_state.num_instances > 1:
            wide = []
            for candidate in host_state.allocation_candidates:
                if len(candidate['allocations']) == 2:
                    wide.append(candidate)
            host_state.allocation_candidates = wide
        return True


class MeddlingFilter(filters.BaseHostFilter):
    """Changes host states and the request spec, and sets an attribute for a weigher."""

    def host_passes(self, host_state, spec_obj):
        host_state.free_ram_mb = -1
        host_state.note = len(host_state.host)
        host_state.stats.clear()
        for aggregate in host_state.aggregates:
            aggregate.metadata.clear()
        spec_obj.flavor.extra_specs['meddled'] = 'yes'
        spec_obj.scheduler_hints.clear()
        spec_obj.ignore_hosts.append(host_state.host)
        spec_obj.project_id = 'mine'
        return True


class BrokenFilter(filters.BaseHostFilter):
    """Raises an error about a host with instances."""

    def host_passes(self, host_state, spec_obj):
        if host_state.num_instances:
            raise RuntimeError(_('out of order'))
        return True


class DatabaseFilter(filters.BaseHostFilter):
    """Reads nova's database."""

    def host_passes(self, host_state, spec_obj):
        return objects.ServiceList.get_all(spec_obj._context)


class RolesFilter(filters.BaseHostFilter):
    """Passes hosts whose role the caller has."""

    def host_passes(self, host_state, spec_obj):
        roles = filter_utils.aggregate_values_from_key(host_state, 'role')
        return roles <= set(spec_obj._context.roles)


class ComputeFilter(filters.BaseHostFilter):
    """Rejects every host, and has the name of a built-in filter."""

    def host_passes(self, host_state, spec_obj):
        return False


class NameWeigher(weights.BaseHostWeigher):
    """Prefers hosts with long names, with a multiplier from aggregate metadata."""

    maxval = 4

    def weight_multiplier(self, host_state):
        return utils.get_weight_multiplier(host_state, 'name_weight_multiplier', 1.0)

    def _weigh_object(self, host_state, weight_properties):
        return len(host_state.host)


class NoteWeigher(weights.BaseHostWeigher):
    """Prefers hosts with a greater ``note``, the attribute of MeddlingFilter. The
    multiplier is a method without arguments, as before Stein (19)."""

    def weight_multiplier(self):
        return 2.0

    def _weigh_object(self, host_state, weight_properties):
        return host_state.note


class LastWeigher(weights.BaseHostWeigher):
    """Prefers the last host; the multiplier is a number."""

    weight_multiplier = 3

    def weigh_objects(self, weighed_obj_list, weight_properties):
        return list(range(len(weighed_obj_list)))

    def _weigh_object(self, host_state, weight_properties):
        raise NotImplementedError


class BrokenWeigher(weights.BaseHostWeigher):
    """Returns ``None`` as the weight."""

    def _weigh_object(self, host_state, weight_properties):
        return None


def rack_filters():
    """Returns classes, as nova's ``all_filters`` does."""
    return [RackFilter, SureFilter]


def weighers_and_more():
    """Returns a weigher and a filter."""
    return [NameWeigher, RackFilter]


class NoFilter:
    """Is not a filter for nova either."""


class RefusesToStart(filters.BaseHostFilter):
    """Raises an error in the constructor."""

    def __init__(self):
        raise RuntimeError('the inventory\nis not there')
