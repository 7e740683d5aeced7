# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl check``: what an operator should know before the switch.

One module for each kind of check. Each reads a :class:`~novasched.checking.nova_conf.NovaConf`
and yields findings; those that ask somebody outside give questions, which are put at once
and are not waited for longer than the operator says.
"""
