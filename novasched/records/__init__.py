# SPDX-License-Identifier: Apache-2.0
"""Decision records: why a server went where it went, or nowhere.

While a request is decided an :class:`~novasched.records.account.Account` notes counts, names
and reasons; afterwards it is folded into a :class:`~novasched.records.record.Record`, of
which ``story.py`` tells. A record holds neither hosts nor candidates.
"""
