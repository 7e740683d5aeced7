# SPDX-License-Identifier: Apache-2.0
"""What cases are about. A theme is a function that adds one matter to a case: to its
hosts, its request and the configuration."""
