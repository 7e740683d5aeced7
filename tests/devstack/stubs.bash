# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# What the plugin calls of DevStack. Services are enabled and disabled as DevStack does it;
# everything else prints its name and arguments.

set -o errexit

export DEST=/dest NOVA_CONF=/etc/nova/nova.conf PLACEMENT_CONF=/etc/placement/placement.conf

function is_service_enabled {
    local service
    for service in "$@"; do
        [[ ",$ENABLED_SERVICES," == *",$service,"* ]] && return 0
        [[ "$service" == nova && ",$ENABLED_SERVICES" == *",n-"* ]] && return 0
        [[ "$service" == placement && ",$ENABLED_SERVICES" == *",placement-"* ]] && return 0
    done
    return 1
}

function enable_service {
    [[ ",$DISABLED_SERVICES," == *",$1,"* ]] || is_service_enabled "$1" ||
        ENABLED_SERVICES+=",$1"
}

function disable_service {
    local services=",$ENABLED_SERVICES,"
    services=${services//,$1,/,}
    services=${services#,}
    ENABLED_SERVICES=${services%,}
    DISABLED_SERVICES+=",$1"
}

function get_python_exec_prefix { echo /data/venv/bin; }

for name in async_wait configure_placement_nova_compute echo_summary iniset python3 rm \
    run_process setup_develop stop_process; do
    eval "function $name { echo $name \"\$@\"; }"
done
