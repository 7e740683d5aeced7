# SPDX-License-Identifier: Apache-2.0
"""Run the benchmarks: ``python -m tests.perf [NAME] [OPTIONS]``.

With a name, one benchmark runs, with the options. Without a name all benchmarks run,
and the options go to the benchmark of the daemon. The exit status is 1 if a bound is
missed or a benchmark fails.
"""

import subprocess
import sys

BENCHMARKS = (
    'numa',
    'decision',
    'ranking',
    'beside',
    'busy',
    'simulate',
    'lose',
    'trace',
    'plan',
    'devices',
    'processor',
    'daemon',
)


def main(arguments):
    """Run the benchmarks in the arguments; the exit status."""
    name, *options = arguments or ['']
    if name in BENCHMARKS:
        return _run(name, options)

    statuses = []
    for benchmark in BENCHMARKS:
        of_daemon = arguments if benchmark == 'daemon' else []
        statuses.append(_run(benchmark, of_daemon))
    return int(any(statuses))


def _run(name, options):
    """Run a benchmark in a process of its own; the exit status."""
    return subprocess.run(
        [sys.executable, '-m', f'tests.perf.{name}', *options]
    ).returncode


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
