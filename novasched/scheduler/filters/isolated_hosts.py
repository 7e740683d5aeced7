# SPDX-License-Identifier: Apache-2.0
from collections.abc import Hashable

from novasched.scheduler.filters import Filter, Scope
from novasched.scheduler.model.host import Host
from novasched.scheduler.model.request import Request


class IsolatedHostsFilter(Filter):
    """Keep isolated images on isolated hosts, and all remaining images off such hosts.

    ``[filter_scheduler] isolated_images`` and ``isolated_hosts`` list images and hosts.
    With ``restrict_isolated_hosts_to_isolated_images = False``, images that are not
    isolated may go to every host.
    """

    scope = Scope.REQUEST
    on_rebuild = True
    phrase = 'isolated from the image'

    def applies(self, request: Request) -> bool:
        return bool(self.settings.isolated_images or self.settings.isolated_hosts)

    def request_key(self, request: Request) -> Hashable | None:
        if request.image:
            return request.image.id
        return None

    def reject(self, host: Host, request: Request) -> str | None:
        settings = self.settings
        isolated_host = host.host in settings.isolated_hosts
        isolated_image = False
        if request.image:
            isolated_image = request.image.id in settings.isolated_images

        if isolated_image == isolated_host:
            return None
        if isolated_image:
            return 'the image is for isolated hosts'
        if settings.restrict_isolated_hosts_to_isolated_images:
            return 'the host is for isolated images'
        return None
