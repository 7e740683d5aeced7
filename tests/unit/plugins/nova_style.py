# SPDX-License-Identifier: Apache-2.0
"""Filters and weighers as somebody would write them for nova, for tests to load by
path."""

import nova.conf
from nova import objects
from nova.i18n import _
from nova.scheduler import filters, utils, weights
from nova.scheduler.filters import utils as filter_utils
from oslo_config import cfg

CONF = nova.conf.CONF
CONF.register_opts([cfg.StrOpt('rack', default='any')], 'acme')


class RackFilter(filters.BaseHostFilter):
    """Passes hosts of the rack that a hint or the configuration names."""

    run_filter_once_per_request = True

    def host_passes(self, host_state, spec_obj):
        wanted = spec_obj.get_scheduler_hint('rack', CONF.acme.rack)
        racks = filter_utils.aggregate_values_from_key(host_state, 'rack')
        return wanted == 'any' or wanted in racks


class SureFilter(RackFilter):
    """The same, also when an instance is rebuilt."""

    RUN_ON_REBUILD = True


class QuietestFilter(filters.BaseHostFilter):
    """Passes the hosts that run the fewest instances of all."""

    def filter_all(self, filter_obj_list, spec_obj):
        least = min(host.num_instances for host in filter_obj_list)
        return [host for host in filter_obj_list if host.num_instances == least]


class EvenFilter(filters.BaseHostFilter):
    """Passes nothing, for every second instance."""

    def run_filter_for_index(self, index):
        return index % 2 == 1

    def host_passes(self, host_state, spec_obj):
        return False


class NeighbourFilter(filters.BaseHostFilter):
    """Passes hosts where the project has an instance, for requests that ask for one."""

    def host_passes(self, host_state, spec_obj):
        if not spec_obj.get_scheduler_hint('neighbour'):
            return True
        return any(
            each.project_id == spec_obj.project_id
            for each in host_state.instances.values()
        )


class LimitFilter(filters.BaseHostFilter):
    """Tells nova-compute how far it may go."""

    def host_passes(self, host_state, spec_obj):
        host_state.limits['memory_mb'] = host_state.total_usable_ram_mb * 1.5
        host_state.limits['unheard_of'] = 1
        return True


class TextLimitFilter(filters.BaseHostFilter):
    """Tells nova-compute in words how far it may go."""

    def host_passes(self, host_state, spec_obj):
        host_state.limits['memory_mb'] = 'plenty'
        return True


class WideCandidateFilter(filters.BaseHostFilter):
    """Leaves a host with more than one instance the candidates that span two
    providers."""

    def host_passes(self, host_state, spec_obj):
        if host_state.num_instances > 1:
            candidates = host_state.allocation_candidates
            host_state.allocation_candidates = [
                x for x in candidates if len(x['allocations']) == 2
            ]
        return True


class MeddlingFilter(filters.BaseHostFilter):
    """Changes whatever it can lay its hands on, and leaves a note for the weigher."""

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
    """Breaks when it meets a host that has an instance of this request."""

    def host_passes(self, host_state, spec_obj):
        if host_state.num_instances:
            raise RuntimeError(_('out of order'))
        return True


class DatabaseFilter(filters.BaseHostFilter):
    """Asks nova's database."""

    def host_passes(self, host_state, spec_obj):
        return objects.ServiceList.get_all(spec_obj._context)


class NameWeigher(weights.BaseHostWeigher):
    """Prefers hosts with long names; aggregates scale it."""

    maxval = 4

    def weight_multiplier(self, host_state):
        return utils.get_weight_multiplier(host_state, 'name_weight_multiplier', 1.0)

    def _weigh_object(self, host_state, weight_properties):
        return len(host_state.host)


class NoteWeigher(weights.BaseHostWeigher):
    """Prefers hosts on which a filter left a greater number; its multiplier is as it
    was before aggregates could override it."""

    def weight_multiplier(self):
        return 2.0

    def _weigh_object(self, host_state, weight_properties):
        return host_state.note


class LastWeigher(weights.BaseHostWeigher):
    """Prefers whichever host comes last; its multiplier is a number."""

    weight_multiplier = 3

    def weigh_objects(self, weighed_obj_list, weight_properties):
        return list(range(len(weighed_obj_list)))

    def _weigh_object(self, host_state, weight_properties):
        raise NotImplementedError


class BrokenWeigher(weights.BaseHostWeigher):
    """Has no opinion."""

    def _weigh_object(self, host_state, weight_properties):
        return None


def rack_filters():
    """A function that returns classes, as nova's own ``all_filters`` does."""
    return [RackFilter, SureFilter]


def weighers_and_more():
    """A function that returns what is no weigher."""
    return [NameWeigher, RackFilter]


class NoFilter:
    """A class that nova would not take either."""


class RefusesToStart(filters.BaseHostFilter):
    """Raises when it is made."""

    def __init__(self):
        raise RuntimeError('the inventory\nis not there')
