# SPDX-License-Identifier: Apache-2.0
"""``novaschedctl shadow``: what novasched would decide, beside what was decided.

Requests are read from a file (``replay.py``) or heard of on the notification bus
(``listen.py``), decided on the live databases and Placement without a claim, and compared with
the answers that they got; where both differ the reason is looked for.
"""
