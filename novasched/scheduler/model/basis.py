# SPDX-License-Identifier: Apache-2.0
"""The basis of one try to decide a request."""

import math
from dataclasses import dataclass, field


class RequestId:
    """Tells a request from all others for as long as the request is decided: requests
    may be equal, and may arrive at the same moment."""


@dataclass(frozen=True, slots=True)
class Basis:
    """The freshness that the data of one try must have, and the time of the request.

    A request is decided in one or more tries, and ``scheduler/attempt.py`` tells the
    basis of the next try. Moments are monotonic seconds. The default has moments in the
    infinite future, which every reader takes for "now": nothing that was read before
    the call serves.

    :ivar request_id: the request, the same in all tries.
    :ivar began: the begin of the try. Data that was read later serves in any case.
    :ivar read_since: a reading of the databases that began at this moment, or later,
        serves, too. Several requests at the same time so share one reading.
    :ivar from_memory: an earlier answer of Placement serves, too.
    :ivar own_query: an answer about all hosts has led to no host, so that Placement is
        asked the query of the request.
    :ivar is_only_request: no other request is being decided at the same time.
    :ivar deadline: the end of the wait for an unavailable Placement.
    :ivar first_claim: the begin of the first claim; infinite before.
    :ivar minimum_version: the lowest version of the nova-compute services, for the
        prefilters; None before the prefilters.
    """

    request_id: RequestId = field(default_factory=RequestId)
    began: float = math.inf
    read_since: float = math.inf
    from_memory: bool = False
    own_query: bool = False
    is_only_request: bool = False
    deadline: float = math.inf
    first_claim: float = math.inf
    minimum_version: int | None = None


FRESH = Basis()
"""The basis of a try that begins now, and waits for nothing."""
