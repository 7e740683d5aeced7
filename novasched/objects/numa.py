# SPDX-License-Identifier: Apache-2.0
"""NUMA topologies on the wire: what guests ask for and what hosts report.

Memory is in MiB, page sizes in KiB. Policies are plain texts, so that one which a newer
release adds does not fail the request.
"""

from __future__ import annotations

from oslo_versionedobjects import fields

from novasched.objects.base import NovaObject, register


@register
class InstanceNUMACell(NovaObject):
    """A guest cell. Before 1.5 there is no pcpuset: a dedicated cell has its CPUs in
    cpuset."""

    VERSION = '1.6'

    fields = {
        'id': fields.IntegerField(),
        'cpuset': fields.SetOfIntegersField(),
        'pcpuset': fields.SetOfIntegersField(),
        'cpuset_reserved': fields.SetOfIntegersField(),
        'memory': fields.IntegerField(),
        'pagesize': fields.IntegerField(),
        'cpu_pinning_raw': fields.DictOfIntegersField(),
        'cpu_policy': fields.StringField(),
        'cpu_thread_policy': fields.StringField(),
    }


@register
class InstanceNUMATopology(NovaObject):
    """The cells of a guest."""

    VERSION = '1.3'

    fields = {
        'instance_uuid': fields.StringField(),
        'cells': fields.ListOfObjectsField('InstanceNUMACell'),
        'emulator_threads_policy': fields.StringField(),
    }


@register
class NUMAPagesTopology(NovaObject):
    """Pages of one size in a host cell."""

    VERSION = '1.1'

    fields = {
        'size_kb': fields.IntegerField(),
        'total': fields.IntegerField(),
        'used': fields.IntegerField(),
        'reserved': fields.IntegerField(),
    }


@register
class NetworkMetadata(NovaObject):
    """Physical networks, and whether tunnelled ones are meant too."""

    VERSION = '1.0'

    fields = {
        'physnets': fields.SetOfStringsField(),
        'tunneled': fields.BooleanField(),
    }


@register
class NUMACell(NovaObject):
    """A host cell. Before 1.4 there is no pcpuset, before 1.5 no socket."""

    VERSION = '1.5'

    fields = {
        'id': fields.IntegerField(),
        'cpuset': fields.SetOfIntegersField(),
        'pcpuset': fields.SetOfIntegersField(),
        'memory': fields.IntegerField(),
        'cpu_usage': fields.IntegerField(),
        'memory_usage': fields.IntegerField(),
        'pinned_cpus': fields.SetOfIntegersField(),
        'siblings': fields.ListOfSetsOfIntegersField(),
        'mempages': fields.ListOfObjectsField('NUMAPagesTopology'),
        'network_metadata': fields.ObjectField('NetworkMetadata'),
        'socket': fields.IntegerField(),
    }


@register
class NUMATopology(NovaObject):
    """The cells of a host."""

    VERSION = '1.2'

    fields = {
        'cells': fields.ListOfObjectsField('NUMACell'),
    }


@register
class NUMATopologyLimits(NovaObject):
    """How far compute may overcommit a cell, and the networks that the guest needs."""

    VERSION = '1.1'

    fields = {
        'cpu_allocation_ratio': fields.FloatField(),
        'ram_allocation_ratio': fields.FloatField(),
        'network_metadata': fields.ObjectField('NetworkMetadata'),
    }
