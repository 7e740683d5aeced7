# SPDX-License-Identifier: Apache-2.0
"""Plots: the use of all hosts, from the fullest to the emptiest, and the capacity in
use by the offered load."""

from collections.abc import Callable, Mapping, Sequence
from itertools import cycle
from pathlib import Path
from typing import Any

from matplotlib import rc_context, ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from novasched.scheduler.model.host import Host
from novasched.tools.simulate.runs import used_share
from novasched.tools.simulate.sources import Unusable

UNDATED = {'.png': {}, '.svg': {'Date': None}, '.pdf': {'CreationDate': None}}
"""Metadata of each kind of file, without a date: the same simulation draws the same
picture."""

SIZE = (10.0, 4.4)
"""Width and height in inches."""

DPI = 150
INK = '#334155'
FAINT = '#e2e8f0'
COLOURS = ('#94a3b8', '#2563eb', '#ea580c')
"""The colour of the hosts before, and of the hosts after each run."""

LINES = ('#2563eb', '#ea580c', '#16a34a', '#9333ea', '#0891b2')
"""The colours of configurations, in turn."""

PANEL_INCHES = 3.6
MAX_LEGEND_COLUMNS = 3

Loads = Mapping[str, Mapping[str, Sequence[tuple[float, float]]]]
"""Pairs of an offered share and a share in use, by resource and configuration."""


def check(path: str) -> None:
    """Check the name of a picture.

    :raises Unusable: the name is not that of a picture, or the folder does not exist.
    """
    if Path(path).suffix.lower() not in UNDATED:
        raise Unusable(f'--plot {path}: the name must end in {", ".join(UNDATED)}')
    if not Path(path).absolute().parent.is_dir():
        raise Unusable(f'--plot {path}: the folder does not exist')


def draw(path: str, title: str, curves: Mapping[str, Sequence[Host]]) -> None:
    """Draw memory in use and instances, a line for each state of the hosts.

    :param curves: the hosts in each state, by name of the state.
    :raises Unusable: the file cannot be written.
    """
    figure = Figure(figsize=SIZE, layout='constrained')
    memory, servers = figure.subplots(1, 2)

    _panel(memory, 'memory in use', curves, used_share)
    _panel(servers, 'servers', curves, lambda host: float(host.num_instances))
    memory.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
    servers.yaxis.set_major_locator(
        ticker.MaxNLocator(integer=True, steps=(1, 2, 5, 10))
    )

    _save(path, title, figure, memory)


def draw_loads(path: str, title: str, loads: Loads) -> None:
    """Draw the share in use by the offered share, a panel for each resource and a line
    for each configuration.

    :param loads: points by resource and configuration.
    :raises Unusable: the file cannot be written.
    """
    size = (max(SIZE[0], PANEL_INCHES * len(loads)), SIZE[1])
    figure = Figure(figsize=size, layout='constrained')
    panels = figure.subplots(1, len(loads), squeeze=False)[0]
    for axes, (name, lines) in zip(panels, loads.items(), strict=True):
        for (setting, points), colour in zip(lines.items(), cycle(LINES), strict=False):
            axes.plot(*zip(*points, strict=True), label=setting, color=colour)
        axes.set_title(f'{name} in use', loc='left', color=INK, fontsize=11)
        axes.set_xlabel('offered', color=INK)
        axes.xaxis.set_major_formatter(ticker.PercentFormatter(1.0))
        axes.yaxis.set_major_formatter(ticker.PercentFormatter(1.0))
        _style(axes)
    _save(path, title, figure, panels[0])


def _save(path: str, title: str, figure: Figure, labelled: Axes) -> None:
    """Write a figure with a title, and with a legend of the lines of a panel."""
    handles, labels = labelled.get_legend_handles_labels()
    legend: dict[str, Any] = {
        'loc': 'outside lower center',
        'ncols': min(len(labels), MAX_LEGEND_COLUMNS),
        'frameon': False,
    }
    figure.legend(handles, labels, **legend, labelcolor=INK)
    figure.suptitle(title, color=INK, fontsize=13, fontweight='bold')

    try:
        # Names within an SVG are derived from this salt, otherwise from a random one.
        with rc_context({'svg.hashsalt': title}):
            figure.savefig(path, dpi=DPI, metadata=UNDATED[Path(path).suffix.lower()])
    except OSError as error:
        raise Unusable(f'--plot {path}: {error.strerror}') from None


def _panel(
    axes: Axes,
    title: str,
    curves: Mapping[str, Sequence[Host]],
    value: Callable[[Host], float],
) -> None:
    # Hosts lie side by side without a gap, so that thousands of them make a curve.
    for (name, hosts), colour in zip(curves.items(), COLOURS, strict=False):
        heights = sorted(map(value, hosts), reverse=True)
        places = range(len(heights) + 1)
        axes.stairs(
            heights, places, baseline=None, label=name, color=colour, linewidth=1.8
        )
        if colour == COLOURS[0]:
            axes.stairs(heights, places, color=colour, alpha=0.25, fill=True)
        axes.set_xlim(0, len(heights))

    axes.set_ylim(bottom=0)
    axes.set_title(title, loc='left', color=INK, fontsize=11)
    axes.set_xlabel('hosts, the fullest first', color=INK)
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, steps=(1, 2, 5, 10)))
    _style(axes)


def _style(axes: Axes) -> None:
    axes.grid(axis='y', color=FAINT)
    axes.set_axisbelow(True)
    axes.tick_params(colors=INK)
    axes.spines[['top', 'right']].set_visible(False)
    axes.spines[['left', 'bottom']].set_color(INK)
