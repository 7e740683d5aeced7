# SPDX-License-Identifier: Apache-2.0
"""The options that nova-scheduler has declared since Mitaka, and the treatment of each.

``read``: by this name, and perhaps by a newer one. ``refused``: a value with an effect
in that release ends the start. ``ignored``: the check says so. ``others``: options of
other services, or without an effect on a scheduler, which the check only counts.
"""

import pytest
from oslo_config import cfg

from novasched.conf import loading
from novasched.conf.errors import ConfigError
from novasched.tools.check import options as check

RELEASES = """
DEFAULT          aggregate_image_properties_isolation_namespace     13  23  read
DEFAULT          aggregate_image_properties_isolation_separator     13  23  read
DEFAULT          baremetal_scheduler_default_filters                13  17  ignored
DEFAULT          cell_worker_thread_pool_size                       32  34  ignored
DEFAULT          concurrency_backend                                34  34  ignored
DEFAULT          cpu_allocation_ratio                               14  34  read
DEFAULT          default_availability_zone                          13  34  read
DEFAULT          default_green_pool_size                            28  34  ignored
DEFAULT          default_schedule_zone                              13  34  others
DEFAULT          default_thread_pool_size                           32  34  ignored
DEFAULT          disk_allocation_ratio                              14  34  read
DEFAULT          disk_weight_multiplier                             13  23  read
DEFAULT          enable_new_services                                14  34  others
DEFAULT          host                                               14  34  read
DEFAULT          initial_cpu_allocation_ratio                       19  34  read
DEFAULT          initial_disk_allocation_ratio                      19  34  read
DEFAULT          initial_ram_allocation_ratio                       19  34  read
DEFAULT          internal_service_availability_zone                 13  34  others
DEFAULT          io_ops_weight_multiplier                           13  23  read
DEFAULT          isolated_hosts                                     13  23  read
DEFAULT          isolated_images                                    13  23  read
DEFAULT          long_rpc_timeout                                   18  34  others
DEFAULT          manager_shutdown_timeout                           33  34  ignored
DEFAULT          max_instances_per_host                             13  23  read
DEFAULT          max_io_ops_per_host                                13  23  read
DEFAULT          notification_format                                14  34  read
DEFAULT          periodic_enable                                    14  34  read
DEFAULT          periodic_fuzzy_delay                               14  34  ignored
DEFAULT          pybasedir                                          13  34  read
DEFAULT          ram_allocation_ratio                               14  34  read
DEFAULT          ram_weight_multiplier                              13  23  read
DEFAULT          report_interval                                    14  34  read
DEFAULT          restrict_isolated_hosts_to_isolated_images         13  23  read
DEFAULT          scheduler_available_filters                        13  23  read
DEFAULT          scheduler_default_filters                          13  23  read
DEFAULT          scheduler_driver                                   13  22  read
DEFAULT          scheduler_driver_task_period                       13  17  read
DEFAULT          scheduler_host_manager                             13  17  ignored
DEFAULT          scheduler_host_subset_size                         13  23  read
DEFAULT          scheduler_json_config_location                     13  14  ignored
DEFAULT          scheduler_manager                                  14  14  ignored
DEFAULT          scheduler_max_attempts                             13  23  read
DEFAULT          scheduler_topic                                    13  15  refused
DEFAULT          scheduler_tracks_instance_changes                  13  23  ignored
DEFAULT          scheduler_use_baremetal_filters                    13  17  refused
DEFAULT          scheduler_weight_classes                           13  23  read
DEFAULT          service_down_time                                  14  34  read
DEFAULT          servicegroup_driver                                14  34  read
DEFAULT          soft_affinity_weight_multiplier                    13  18  read
DEFAULT          soft_anti_affinity_weight_multiplier               13  18  read
DEFAULT          state_path                                         13  34  read
DEFAULT          thread_pool_statistic_period                       32  34  ignored
filter_scheduler aggregate_image_properties_isolation_namespace     15  34  read
filter_scheduler aggregate_image_properties_isolation_separator     15  34  read
filter_scheduler available_filters                                  15  34  read
filter_scheduler baremetal_enabled_filters                          15  17  ignored
filter_scheduler build_failure_weight_multiplier                    18  34  read
filter_scheduler cpu_weight_multiplier                              18  34  read
filter_scheduler cross_cell_move_weight_multiplier                  21  34  read
filter_scheduler disk_weight_multiplier                             15  34  read
filter_scheduler enabled_filters                                    15  34  read
filter_scheduler host_subset_size                                   15  34  read
filter_scheduler hypervisor_version_weight_multiplier               28  34  read
filter_scheduler image_properties_default_architecture              18  34  read
filter_scheduler image_props_weight_multiplier                      31  34  read
filter_scheduler image_props_weight_setting                         31  34  read
filter_scheduler io_ops_weight_multiplier                           15  34  read
filter_scheduler isolated_hosts                                     15  34  read
filter_scheduler isolated_images                                    15  34  read
filter_scheduler max_instances_per_host                             15  34  read
filter_scheduler max_io_ops_per_host                                15  34  read
filter_scheduler num_instances_weight_multiplier                    28  34  read
filter_scheduler pci_in_placement                                   27  34  read
filter_scheduler pci_weight_multiplier                              16  34  read
filter_scheduler ram_weight_multiplier                              15  34  read
filter_scheduler restrict_isolated_hosts_to_isolated_images         15  34  read
filter_scheduler shuffle_best_same_weighed_hosts                    17  34  read
filter_scheduler soft_affinity_weight_multiplier                    15  34  read
filter_scheduler soft_anti_affinity_weight_multiplier               15  34  read
filter_scheduler track_instance_changes                             15  34  ignored
filter_scheduler use_baremetal_filters                              15  17  refused
filter_scheduler weight_classes                                     15  34  read
metrics          required                                           13  34  read
metrics          weight_multiplier                                  13  34  read
metrics          weight_of_unavailable                              13  34  read
metrics          weight_setting                                     13  34  read
placement        incomplete_consumer_project_id                     18  19  others
placement        incomplete_consumer_user_id                        18  19  others
placement        os_interface                                       15  17  read
placement        os_region_name                                     14  17  read
placement        policy_file                                        18  19  others
placement        randomize_allocation_candidates                    17  19  others
scheduler        discover_hosts_in_cells_interval                   15  34  read
scheduler        driver                                             15  22  read
scheduler        enable_isolated_aggregate_filtering                20  34  read
scheduler        host_manager                                       15  17  ignored
scheduler        image_metadata_prefilter                           21  34  read
scheduler        limit_tenants_to_placement_aggregate               18  34  read
scheduler        max_attempts                                       15  34  read
scheduler        max_placement_results                              17  34  read
scheduler        periodic_task_interval                             15  22  read
scheduler        placement_aggregate_required_for_tenants           18  34  read
scheduler        query_placement_for_availability_zone              18  27  read
scheduler        query_placement_for_image_type_support             20  34  read
scheduler        query_placement_for_routed_network_aggregates      23  34  read
scheduler        workers                                            18  34  read
upgrade_levels   baseapi                                            14  34  others
upgrade_levels   cells                                              13  19  others
upgrade_levels   cert                                               13  28  others
upgrade_levels   compute                                            14  34  others
upgrade_levels   conductor                                          14  34  others
upgrade_levels   console                                            14  20  others
upgrade_levels   consoleauth                                        14  19  others
upgrade_levels   intercell                                          13  19  others
upgrade_levels   network                                            14  20  others
upgrade_levels   scheduler                                          13  34  others
"""
"""Group, name, first and last release of nova from 13 (Mitaka) to 34, treatment. The
releases count older names of an option, too."""
ROWS = [row.split() for row in RELEASES.splitlines() if row]
REFUSED = {'scheduler_topic': 'other'}
"""Values with an effect; ``true`` for all other options."""


def rows_of(treatment):
    """Group and name of the options with a treatment."""
    return [(group, name) for group, name, *_, how in ROWS if how == treatment]


def current_name(group, name):
    """The option that a group and name stand for; None if there is none."""
    for current_group, options in check.known_options({}).items():
        for option in options.values():
            if (group, name) in check.names_of(current_group, option):
                return current_group, option
    return None


def findings_on(load, group, name, value):
    """The findings of the check on the names in a nova.conf with one value."""
    load(f'[{group}]\n{name} = {value}\n')
    written = {group: {name: [value]}}
    return [*check.check_names(written, check.known_options(written))]


def test_the_table_names_each_option_once():
    """Every row has a treatment, and no option has two rows."""
    treatments = {how for *_, how in ROWS}
    assert treatments == {'read', 'refused', 'ignored', 'others'}
    assert len({(group, name) for group, name, *_ in ROWS}) == len(ROWS)


@pytest.mark.parametrize(('group', 'name'), rows_of('read'))
def test_an_option_of_a_release_is_read(load, group, name):
    """The value by this name is the value of the option."""
    found = current_name(group, name)
    assert found is not None
    current_group, option = found
    text = 'x'
    if isinstance(option.default, bool | int | float):
        text = str(option.default)
    elif isinstance(option, cfg.FloatOpt):
        text = '2.5'
    elif option.type is not None and getattr(option.type, 'choices', None):
        text = option.default

    conf = load(f'[{group}]\n{name} = {text}\n')
    section = None if current_group == 'DEFAULT' else current_group
    origin = conf.get_location(option.dest, section)
    assert origin.location is cfg.Locations.user


@pytest.mark.parametrize(('group', 'name'), rows_of('refused'))
def test_an_unsupported_option_with_an_effect_is_refused(load, group, name):
    """The start ends with an error about the option, in the daemon and in the check; a
    value without an effect is accepted."""
    found = current_name(group, name)
    assert found is not None
    current_group, option = found
    conf = load(f'[{group}]\n{name} = {REFUSED.get(name, "true")}\n')
    with pytest.raises(ConfigError) as caught:
        loading.settings(conf)
    assert str(caught.value).startswith(f'[{current_group}] {option.dest} = ')

    written = {group: {name: ['true']}}
    known = check.known_options(written)
    [finding] = check.check_values(conf, written, known)
    assert finding.level == 'error'
    assert finding.subject == f'[{current_group}] {option.dest}'

    loading.settings(load(f'[{group}]\n{name} = {option.default}\n'))


@pytest.mark.parametrize(('group', 'name'), rows_of('ignored'))
def test_an_ignored_option_is_mentioned(load, group, name):
    """The check tells that the option has no effect, and why."""
    [finding] = findings_on(load, group, name, 'host_manager')
    assert finding.level == 'note'
    assert finding.text.startswith('ignored: ')


@pytest.mark.parametrize(('group', 'name'), rows_of('others'))
def test_an_option_of_other_services_is_counted(load, group, name):
    """The check counts the option, and takes it for no mistake."""
    [finding] = findings_on(load, group, name, '1')
    assert finding.level == 'ok'
    assert finding.text.startswith('1 options of other services')


@pytest.mark.parametrize(
    ('text', 'region', 'interfaces'),
    [
        ('os_region_name = two', 'two', ['internal', 'public']),
        ('os_interface = admin', None, ['admin']),
        ('os_region_name = one\nregion_name = two', 'two', ['internal', 'public']),
        ('', None, ['internal', 'public']),
    ],
)
def test_old_names_choose_the_endpoint_of_placement(load, text, region, interfaces):
    """Placement is asked in the region and at the interface of the names that nova read
    from Newton to Queens."""
    conf = load(f'[placement]\n{text}\n')
    assert conf.placement.region_name == region
    assert conf.placement.valid_interfaces == interfaces
