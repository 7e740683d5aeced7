# SPDX-License-Identifier: Apache-2.0
"""The claims of instances on the way to their hosts, shared by all requests of this
process and with the other schedulers. The locks of ``scheduler`` are in this package.
"""
