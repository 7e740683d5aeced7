# SPDX-License-Identifier: Apache-2.0
from tests.unit.own_process import a_process_of_its_own  # noqa: F401  (a fixture of all tests here)
