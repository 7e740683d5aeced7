# SPDX-License-Identifier: Apache-2.0
"""Decision records: why an instance went where it went, or nowhere.

``from_decision.py`` makes a :class:`~novasched.observe.records.record.Record` of each
:class:`~novasched.scheduler.decision.Decision`; it holds neither hosts nor candidates.
"""
