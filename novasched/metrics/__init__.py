# SPDX-License-Identifier: Apache-2.0
"""What is counted and measured for Prometheus, if nova.conf wants that.

``catalogue.py`` names every metric. Workers write to files of a directory that all of them
share, and the process that serves HTTP reads these. A request pays next to nothing: what it
did is folded from its account afterwards (``tally.py``), and how things stand is looked at
every now and then (``sampling.py``).
"""
