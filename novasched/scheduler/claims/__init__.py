# SPDX-License-Identifier: Apache-2.0
"""The claims of instances on their way to hosts, shared by all requests of this process
and with other schedulers. The locks of ``scheduler`` are in this package."""
