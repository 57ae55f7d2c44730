"""Plots as SVG; the same numbers give the same file."""

from statistics import median

import matplotlib

matplotlib.use("svg")
matplotlib.rcParams["svg.hashsalt"] = "zklock"
matplotlib.rcParams["svg.fonttype"] = "none"

# pylint: disable=wrong-import-position
from matplotlib import pyplot                                   # noqa: E402
from matplotlib.ticker import FuncFormatter                     # noqa: E402


COLORS = {"zklock": "#2a6fbb"}


def draw(plots, path):
    """Draws all plots of a part into one picture."""
    rows = (len(plots) + 1) // 2
    columns = min(len(plots), 2)
    figure, grid = pyplot.subplots(rows, columns, figsize=(7 * columns, 4.2 * rows), squeeze=False)
    for axes in list(grid.flat)[len(plots):]:
        axes.remove()
    for plot, axes in zip(plots, grid.flat):
        draw_one(plot, axes)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def draw_bars(title, bars, path):
    """Draws medians as bars, by name, each with its number and a line from the least to the
    greatest round."""
    figure, axes = pyplot.subplots(figsize=(7.2, 0.42 * len(bars) + 1))
    names = list(bars)[::-1]
    for place, name in enumerate(names):
        middle = median(bars[name])
        axes.barh(place, middle, height=0.62, color=COLORS.get(name.split(",")[0], "#9aa5b1"),
                  xerr=[[middle - min(bars[name])], [max(bars[name]) - middle]],
                  error_kw={"elinewidth": 1, "ecolor": "#333333", "capsize": 3})
        # Apart from the line, which would look like a minus.
        axes.annotate(f"{middle:,.0f}", (max(bars[name]), place), xytext=(9, 0),
                      textcoords="offset points", va="center")
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, 1.2 * max(max(rounds) for rounds in bars.values()))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))
    axes.set_title(title, loc="left")
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None, "Creator": None})
    pyplot.close(figure)


def draw_one(plot, axes):
    """Draws medians, with a bar from the least to the greatest round."""
    for curve in plot["curves"]:
        middle = [median(rounds) for rounds in curve["rounds"]]
        below = [m - min(rounds) for m, rounds in zip(middle, curve["rounds"])]
        above = [max(rounds) - m for m, rounds in zip(middle, curve["rounds"])]
        axes.errorbar(curve["x"], middle, yerr=[below, above], marker="o",
                      markersize=4, capsize=3, label=curve["name"])
    axes.set(xscale="log", title=plot["title"], xlabel=plot["x"], ylabel=plot["y"])
    every = [value for curve in plot["curves"] for rounds in curve["rounds"]
             for value in rounds]
    if max(every) > 10 * min(every) > 0:
        axes.set_yscale("log")
    else:
        axes.set_ylim(0, 1.1 * max(every))
    sizes = sorted({x for curve in plot["curves"] for x in curve["x"]})
    axes.set_xticks(sizes, [f"{size:,}" for size in sizes])
    axes.minorticks_off()
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.grid(True, alpha=0.3)
    axes.legend()
