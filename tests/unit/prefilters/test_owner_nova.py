# SPDX-License-Identifier: Apache-2.0
import pytest

from novasched.model.pci import PciRequest
from novasched.model.request import RequestGroup
from novasched.model.settings import Settings
from novasched.prefilters.owner_nova import OwnerNovaPrefilter
from tests.builders import a_request
from tests.ports import sources

ALIAS = PciRequest(1, alias_name='gpu', request_id='11-aa')
PORT = PciRequest(1, request_id='22-bb')


def groups(request):
    return {each.requester_id: set(each.required_traits) for each in request.requested_resources}


@pytest.mark.parametrize(('version', 'traits'), [(0, set()), (72, set()), (73, {'OWNER_NOVA'})])
def test_every_compute_must_set_the_mark(version, traits):
    """Providers of older computes have no mark, so none is required until all are new."""
    prefilter = OwnerNovaPrefilter(Settings(), sources(version=version))
    assert prefilter(a_request()).root_required == traits


def test_the_mark_of_devices():
    """The groups of a flavor's PCI devices need it too; those of ports and of device
    profiles do not."""
    asked = [RequestGroup(name, {'CUSTOM_X': 1}, frozenset({'T'}))
             for name in ('11-aa-0', '11-aa-1', '22-bb-0', 'port', None)]  # fmt: skip
    request = a_request(pci_requests=(ALIAS, PORT), requested_resources=tuple(asked))
    after = OwnerNovaPrefilter(Settings(), sources(version=73))(request)
    assert groups(after) == {
        '11-aa-0': {'T', 'OWNER_NOVA'}, '11-aa-1': {'T', 'OWNER_NOVA'},
        '22-bb-0': {'T'}, 'port': {'T'}, None: {'T'},
    }  # fmt: skip


def test_a_request_that_has_it():
    """A request that requires the mark already is passed on as it is."""
    request = a_request(root_required=frozenset({'OWNER_NOVA'}))
    assert OwnerNovaPrefilter(Settings(), sources(version=0))(request) is request


def test_an_older_cloud_is_told_once(caplog):
    """The log says once why the mark is not required, and again when that changes."""
    old = sources(version=60)
    prefilter = OwnerNovaPrefilter(Settings(), old)
    for version in (60, 60, 61):
        old.computes.version = version
        prefilter(a_request())
    assert [record.args[0] for record in caplog.records if record.levelname == 'WARNING'] == [
        60,
        61,
    ]
