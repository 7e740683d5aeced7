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
    # Without DevStack's upper constraints, since novasched may need newer libraries than the
    # nova of this DevStack.
    "$NOVASCHED_VENV/bin/pip" install --editable "$NOVASCHED_DIR"
}

function configure_novasched {
    # A background job of DevStack may still write nova.conf.
    if [[ "$(type -t async_wait)" == function ]]; then
        async_wait configure_neutron_nova
    fi
    # stack.sh writes [placement] only for n-cpu and n-sch, and the plugin disables n-sch.
    if is_service_enabled placement placement-client && ! is_service_enabled n-cpu; then
        configure_placement_nova_compute
    fi
    iniset "$NOVA_CONF" scheduler workers "$NOVASCHED_WORKERS"
    if [[ -n "$NOVASCHED_IN_FLIGHT_TIMEOUT" ]]; then
        iniset "$NOVA_CONF" novasched in_flight_timeout "$NOVASCHED_IN_FLIGHT_TIMEOUT"
    fi
    # Placement starts after this phase, and reads the option then.
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
    # DevStack removes nova.conf with the options of novasched.
    if [[ -n "$NOVASCHED_VENV" ]]; then
        rm -rf "$NOVASCHED_VENV"
    fi
}

if is_service_enabled novasched; then
    case "$1,${2:-}" in
        stack,pre-install)
            # novasched needs no system packages beside those of nova.
            ;;
        stack,install)
            echo_summary "Installing novasched"
            install_novasched
            ;;
        stack,post-config)
            # The databases, the cell mappings and nova.conf exist in this phase.
            echo_summary "Configuring novasched"
            configure_novasched
            ;;
        stack,extra)
            # nova's other services and Placement run, and no server has been booted yet.
            echo_summary "Starting novasched"
            start_novasched
            ;;
        stack,test-config)
            # Tempest is configured as for nova-scheduler.
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
