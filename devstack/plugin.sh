# shellcheck shell=bash
# SPDX-License-Identifier: Apache-2.0
#
# DevStack plugin: novasched in place of nova-scheduler.
#
# DevStack sources this file with a mode (stack, unstack, clean) and, for stack, a phase.

# Save trace setting
_XTRACE_NOVASCHED=$(set +o | grep xtrace)
set +o xtrace

function novasched_bin_dir {
    if [[ -n "$NOVASCHED_VENV" ]]; then
        echo "$NOVASCHED_VENV/bin"
    else
        get_python_exec_prefix
    fi
}

function install_novasched {
    if [[ -z "$NOVASCHED_VENV" ]]; then
        setup_develop "$NOVASCHED_DIR"
        return
    fi
    python3 -m venv "$NOVASCHED_VENV"
    # No constraints: in an environment of its own novasched may have newer libraries than
    # the nova of this DevStack has.
    "$NOVASCHED_VENV/bin/pip" install --editable "$NOVASCHED_DIR"
}

function configure_novasched {
    # The last of nova's configuration may still be written, in the background.
    if [[ "$(type -t async_wait)" == function ]]; then
        async_wait configure_neutron_nova
    fi
    # stack.sh writes [placement] where n-cpu or n-sch is enabled, and n-sch no longer is.
    if is_service_enabled placement placement-client && ! is_service_enabled n-cpu; then
        configure_placement_nova_compute
    fi
    iniset "$NOVA_CONF" scheduler workers "$NOVASCHED_WORKERS"
    if [[ -n "$NOVASCHED_IN_FLIGHT_TIMEOUT" ]]; then
        iniset "$NOVA_CONF" novasched in_flight_timeout "$NOVASCHED_IN_FLIGHT_TIMEOUT"
    fi
    # Placement starts after this phase, so that it reads what is written here.
    if is_service_enabled placement-api && [[ -n "$NOVASCHED_PLACEMENT_RETRIES" ]]; then
        iniset "$PLACEMENT_CONF" placement \
            allocation_conflict_retry_count "$NOVASCHED_PLACEMENT_RETRIES"
    fi
}

function start_novasched {
    run_process novasched "$(novasched_bin_dir)/novasched --config-file $NOVA_CONF"
}

function stop_novasched {
    stop_process novasched
}

function cleanup_novasched {
    # All that novasched leaves on a node. What is in nova.conf goes with nova.conf.
    if [[ -n "$NOVASCHED_VENV" ]]; then
        rm -rf "$NOVASCHED_VENV"
    fi
}

if is_service_enabled novasched; then
    case "$1,${2:-}" in
        stack,pre-install)
            # Needs no package that DevStack does not install for nova.
            ;;
        stack,install)
            echo_summary "Installing novasched"
            install_novasched
            ;;
        stack,post-config)
            # The databases and the cell mappings are there, and nova.conf is written.
            echo_summary "Configuring novasched"
            configure_novasched
            ;;
        stack,extra)
            # nova's other services and Placement run; nothing has booted a server yet.
            echo_summary "Starting novasched"
            start_novasched
            ;;
        stack,test-config)
            # Tempest's configuration says nothing that differs from nova-scheduler.
            ;;
        unstack,*)
            stop_novasched
            ;;
        clean,*)
            # clean.sh runs unstack.sh first.
            cleanup_novasched
            ;;
    esac
fi

# Restore xtrace
$_XTRACE_NOVASCHED
