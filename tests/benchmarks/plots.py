"""The plots of the page, readable on light and dark alike; the same figures give the same files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, NullFormatter

GREY: Final = "#808080"

Line = Sequence[tuple[float, float]]


def draw(
    path: Path, panels: Mapping[str, Mapping[str, Line]], *, x: str, y: str, ticks: Sequence[int]
) -> None:
    """Draw one panel beside the other, each with lines by name; both axes are logarithmic."""
    with mpl.rc_context(
        {
            "svg.fonttype": "none",
            # Names of elements are random without it.
            "svg.hashsalt": "cardonfile",
            "text.color": GREY,
            "axes.labelcolor": GREY,
            "axes.edgecolor": GREY,
            "xtick.color": GREY,
            "ytick.color": GREY,
        }
    ):
        figure = Figure(figsize=(4.6 * len(panels), 3.6), layout="constrained")
        drawn = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
        for axes, (title, lines) in zip(drawn, panels.items(), strict=True):
            _draw_panel(axes, title, lines, ticks)
            axes.set_xlabel(x)
        drawn[0].set_ylabel(y)
        drawn[-1].legend(frameon=False, fontsize="small", loc="best")
        figure.savefig(path, transparent=True, metadata={"Date": None, "Creator": None})


def _draw_panel(axes: Axes, title: str, lines: Mapping[str, Line], ticks: Sequence[int]) -> None:
    for name, points in lines.items():
        xs, ys = zip(*points, strict=True)
        axes.plot(xs, ys, marker="o", markersize=4, label=name)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks(ticks)
    plain = FuncFormatter(lambda value, _: f"{value:,g}")
    axes.xaxis.set_major_formatter(plain)
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.yaxis.set_major_formatter(plain)
    axes.grid(visible=True, color=GREY, alpha=0.25)
    axes.set_title(title, fontsize="medium")
