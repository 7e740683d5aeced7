# SPDX-License-Identifier: Apache-2.0
"""Days of a cloud in virtual time: ``python -m tests.simulation``."""

import os
import sys
import traceback

from tests.simulation.run import main

try:
    status = main()
except Exception:
    traceback.print_exc()
    status = 2
sys.stdout.flush()
# Threads of the standard library that nobody runs any more would be waited for.
os._exit(status)
