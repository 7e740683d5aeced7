# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.conf.settings import Settings
from novasched.scheduler.errors import NoValidHost
from novasched.scheduler.model.request import Destination, RequestedNetwork
from novasched.scheduler.prefilters import Port
from novasched.scheduler.prefilters.request_filter import (
    RemoteManagedPortsPrefilter,
    RoutedNetworksPrefilter,
)
from tests.lab.builders import a_request
from tests.lab.prefilter_sources import StaticNetwork, sources

ON = Settings(query_placement_for_routed_network_aggregates=True)
PORTS = {
    'bound': Port('net', subnet_id='subnet'),
    'flat': Port('net', subnet_id='flat-subnet'),
    'free': Port('net'),
    'card': Port('net', vnic_type='remote-managed'),
}
AGGREGATES = {
    'net': ['agg1', 'agg2'],
    'subnet': ['agg2'],
    'flat-subnet': [],
    'net3': ['agg3'],
    'flat-net': [],
}


def a_network(**fields):
    return StaticNetwork(PORTS, AGGREGATES, **fields)


def on(*networks, **fields):
    requested = tuple(RequestedNetwork(**network) for network in networks)
    return a_request(requested_networks=requested, **fields)


@pytest.mark.parametrize(
    ('networks', 'wanted'),
    [
        ([], ()),
        ([{}], ()),
        ([{'network_id': 'net'}], ({'agg1', 'agg2'},)),
        ([{'network_id': 'flat-net'}], ()),
        ([{'port_id': 'bound'}], ({'agg2'},)),
        ([{'port_id': 'bound', 'network_id': 'net3'}], ({'agg2'},)),
        ([{'port_id': 'flat'}], ()),
        ([{'port_id': 'free'}], ({'agg1', 'agg2'},)),
        ([{'port_id': 'bound'}, {}, {'network_id': 'net3'}], ({'agg2'}, {'agg3'})),
    ],
)
def test_a_request_is_restricted_to_segments_of_routed_networks(networks, wanted):
    """The request is restricted to the segments of each network and of each bound
    port."""
    prefilter = RoutedNetworksPrefilter(ON, sources(network=a_network()))
    after = prefilter(on(*networks)).requested_destination or Destination()
    assert after.aggregates == wanted


@pytest.mark.parametrize(
    ('networks', 'why'),
    [
        (
            [{'network_id': 'gone'}],
            'Scheduling failed: Aggregates not found for the network gone',
        ),
        (
            [{'port_id': 'lost'}],
            'Scheduling failed: Aggregates not found for the subnet nowhere',
        ),
        ([{'port_id': 'gone'}], 'Port gone could not be found.'),
    ],
)
def test_networks_without_aggregates_and_missing_ports_are_refused(networks, why):
    """A network without aggregates or a port that does not exist is refused in nova's
    words."""
    ports = {**PORTS, 'lost': Port('net', subnet_id='nowhere')}
    network = StaticNetwork(ports, AGGREGATES)
    with pytest.raises(NoValidHost) as caught:
        RoutedNetworksPrefilter(ON, sources(network=network))(on(*networks))
    assert caught.value.reason == why


@pytest.mark.parametrize(
    ('networks', 'traits'),
    [
        ([], set()),
        ([{'network_id': 'net'}], set()),
        ([{'port_id': 'free'}], set()),
        ([{'port_id': 'free'}, {'port_id': 'card'}], {'COMPUTE_REMOTE_MANAGED_PORTS'}),
    ],
)
def test_a_remote_managed_port_requires_the_trait(networks, traits):
    """A port of a SmartNIC requires a host with the trait."""
    prefilter = RemoteManagedPortsPrefilter(Settings(), sources(network=a_network()))
    assert prefilter(on(*networks)).root_required == traits


def test_a_request_is_refused_if_neutron_does_not_answer(caplog):
    """The request is refused, and the log has the reason."""
    prefilter = RemoteManagedPortsPrefilter(
        Settings(), sources(network=a_network(down=True))
    )
    with pytest.raises(NoValidHost) as caught:
        prefilter(on({'port_id': 'free'}))
    assert caught.value.reason == 'Failed to access ports free.'
    assert 'Failed to access ports: down' in caplog.text


@pytest.mark.parametrize(
    'prefilter', [RoutedNetworksPrefilter, RemoteManagedPortsPrefilter]
)
def test_neutron_is_asked_once_for_all_ports_of_a_request(prefilter):
    """Neutron is asked once for all ports of a request, and not at all without ports.
    Without a section [neutron], requests pass unchanged."""
    network = a_network()
    configured = prefilter(ON, sources(network=network))
    configured(on({'network_id': 'net'}))
    assert network.asked == 0
    configured(on({'port_id': 'free'}, {'port_id': 'bound'}))
    assert network.asked == 1

    request = on({'port_id': 'card'}, {'network_id': 'net'})
    assert prefilter(ON, sources())(request) == request
