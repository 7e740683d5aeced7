# SPDX-License-Identifier: Apache-2.0
"""oslo.service, with threads instead of green threads.

oslo.service takes its backend once, when its modules are first imported; importing
them from here makes sure that the choice comes first. That is why the imports below
stand between other statements.
"""

import warnings

# Libraries look for eventlet, and it warns of itself when they find it.
warnings.filterwarnings('ignore', message=r'\s*Eventlet is deprecated')

from oslo_service import backend  # noqa: E402

backend.init_backend(backend.BackendType.THREADING)

from oslo_service import loopingcall, service  # noqa: E402

__all__ = ['loopingcall', 'service']
