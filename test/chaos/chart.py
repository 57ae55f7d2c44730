#!/usr/bin/python3
"""Draws a history: which clients waited for and held which locks, and when.

    chart.py HISTORY FILE.svg

Owns: the chart. The times of holds come from the checker: a bar is solid while no
other session may hold the lock, so the chart shows the times that are checked.
Needs matplotlib. The same history gives the same file.
"""

import sys

import matplotlib

import history
from checker import Check

matplotlib.use("svg")

# pylint: disable=wrong-import-position
from matplotlib import pyplot                                   # noqa: E402
from matplotlib.lines import Line2D                             # noqa: E402
from matplotlib.patches import Patch                            # noqa: E402
from matplotlib.ticker import MaxNLocator                       # noqa: E402

STYLE = {
    "svg.hashsalt": "zklock", "svg.fonttype": "none", "font.size": 8.5,
    "font.sans-serif": ["DejaVu Sans", "Verdana"], "hatch.linewidth": 0.8,
    "axes.spines.top": False, "axes.spines.right": False,
    "axes.spines.left": False}

SERVERS = {"a": "#1f5fa8", "b": "#b8560f", "c": "#2f7d4f"}
WAITING, FAULT = "#a8a8a8", "#c01c28"

# Shares of a row's height; an exclusive holder gets more.
HEIGHT = {"x": 0.72, "s": 0.34, "p": 0.34}

# A shorter bar is invisible.
SHORT = 0.03

FAULTS = {
    "backend_terminate": "backend of {victim}\nterminated",
    "zk_leader_crash": "ZooKeeper's leader killed,\nstarted again",
    "reset_database": "connections of\nserver {victim} broken",
    "isolate_database": "server {victim} cut off\nfrom ZooKeeper",
}


class Chart:
    """One chart of the records until all faults were repaired."""

    def __init__(self, check):
        self.records = [r for r in check.records if "start" in r]
        self.start = min(r["start"] for r in self.records
                         if r["op"] in ("lock", "begin"))
        self.end = min([r["start"] for r in self.records
                        if r["op"] == "healed"] or
                       [max(r["end"] for r in self.records)])
        self.sections = [
            s for those in (check.sections, check.permits)
            for found in those.values() for s in found if s.start < self.end]
        self.timeout = check.header["timeout"]
        self.semaphores = check.header["semaphores"]
        self.names = [*check.header["names"], *self.semaphores]
        self.clients = {
            name: sorted({s.owner[0] for s in self.sections if s.name == name})
            for name in self.names}
        heights = [len(self.clients[name]) for name in self.names]
        self.figure, panels = pyplot.subplots(
            len(self.names), sharex=True,
            figsize=(10.5, 1.9 + 0.27 * sum(heights)),
            height_ratios=heights, squeeze=False)
        self.panels = dict(zip(self.names, panels[:, 0]))

    def draw(self, path):
        for name, panel in self.panels.items():
            self.lay_out(name, panel)
        for record in self.records:
            if record["op"] == "lock":
                self.wait(record)
            elif record.get("process") == "nemesis":
                self.fault(record)
        for number, section in enumerate(self.sections):
            self.hold(section, number)
        for record in self.records:
            if record["start"] < self.end:
                self.failure(record)
        self.legend()
        self.figure.subplots_adjust(left=0.115, right=0.985, hspace=0.16)
        self.figure.savefig(path, metadata={"Date": None, "Creator": None},
                            bbox_inches="tight", pad_inches=0.12)
        pyplot.close(self.figure)

    def lay_out(self, name, panel):
        clients = self.clients[name]
        panel.set_ylim(len(clients) - 0.4, -0.6)
        panel.set_yticks(range(len(clients)), clients)
        for label in panel.get_yticklabels():
            label.set_color(SERVERS[label.get_text()[0]])
        panel.tick_params(axis="y", length=0)
        panel.tick_params(axis="x", length=3 if name == self.names[-1] else 0)
        size = self.semaphores.get(name)
        panel.set_ylabel(f"{name}\n{size} permits" if size else name, rotation=0, ha="right", va="center",
                         weight="bold", labelpad=14)
        panel.set_xlim(0, self.end - self.start)
        panel.xaxis.set_major_locator(MaxNLocator(12, integer=True))
        panel.set_axisbelow(True)
        panel.grid(axis="x", color="#ececec")
        panel.spines["bottom"].set_color("#c8c8c8")
        if name == self.names[-1]:
            panel.set_xlabel(f"seconds; the session timeout T is {self.timeout:g} s")

    def bar(self, name, client, start, end, height, **style):
        """Draws a bar, unless it ends before the chart begins or is too short."""
        start, end = (min(when, self.end) - self.start for when in (start, end))
        if client in self.clients.get(name, ()) and end - start > SHORT:
            self.panels[name].barh(
                self.clients[name].index(client), end - start, height, start,
                **style)

    def wait(self, record):
        for name in record["names"]:
            self.bar(name, record["process"], record["start"], record["end"],
                     0.1, color=WAITING)

    def hold(self, section, number):
        """Draws a hold: solid while it is guaranteed, hatched until its end is reported."""
        client = section.owner[0]
        colour = SERVERS[client[0]]
        place = section.name, client
        height = HEIGHT[section.mode]
        self.bar(*place, section.start, section.guaranteed_until, height, facecolor=colour,
                 edgecolor="white", linewidth=0.5,
                 gid=f"hold {client} {section.name} {section.mode} {number}")
        self.bar(*place, section.guaranteed_until, section.reported_at, height, color="white",
                 edgecolor=colour, hatch="/////", linewidth=0.8)

    def failure(self, record):
        """Marks a refused commit or statement, or a broken connection."""
        if record.get("state") != "40001" and \
                record.get("outcome") != "unknown":
            return
        refused = record["outcome"] == "fail"
        names = [s.name for s in self.sections if s.reported_at == record["end"] and
                 s.owner == (record["process"], record["session"])]
        for name in names or record.get("names", ()):
            clients = self.clients[name]
            self.panels[name].plot(
                record["end"] - self.start, clients.index(record["process"]),
                marker="X" if refused else "P", markersize=9,
                color=FAULT if refused else "black",
                markeredgecolor="white", markeredgewidth=0.7, zorder=5,
                gid=f"{'refused' if refused else 'broken'} {record['process']}")

    def fault(self, record):
        """Draws a fault across all panels, with a label above the first."""
        if record["op"] not in FAULTS or record.get("phase") == "strike":
            return
        start, end = record["start"] - self.start, record["end"] - self.start
        for panel in self.panels.values():
            panel.axvspan(start, max(end, start + SHORT), color=FAULT,
                          alpha=0.13, linewidth=0, zorder=0)
        victim = record["victim"]
        if isinstance(victim, int):
            victim = list(SERVERS)[victim - 1]
        first = self.panels[self.names[0]]
        first.text((start + end) / 2, 1.04,
                   FAULTS[record["op"]].format(victim=victim),
                   transform=first.get_xaxis_transform(), color=FAULT,
                   ha="center", va="bottom")

    def legend(self):
        def shape(marker, **style):
            return Line2D([], [], linestyle="none", marker=marker,
                          markeredgecolor="white", **style)

        grey = "#606060"
        entries = {
            "holds exclusively": Patch(color=grey),
            "holds shared, or has a permit": Line2D([], [], color=grey, linewidth=3.5),
            "waits": Line2D([], [], color=WAITING, linewidth=1.4),
            "holds or has lost the lock:\nno answer proves which": Patch(
                facecolor="white", edgecolor=grey, hatch="/////"),
            "COMMIT refused:\nlock lost (40001)": shape(
                "X", color=FAULT, markersize=9),
            "connection is broken": shape("P", color="black", markersize=9),
        }
        entries |= {f"server {server}": Patch(color=colour)
                    for server, colour in SERVERS.items()}
        self.figure.legend(
            entries.values(), entries.keys(), ncol=5, loc="upper center",
            bbox_to_anchor=(0.53, 0.03), frameon=False, handlelength=1.6)


def draw(check, path):
    """Draws the result of a check."""
    with matplotlib.rc_context(STYLE):
        Chart(check).draw(path)


def main():
    check = Check(history.read(sys.argv[1]))
    check.run()
    draw(check, sys.argv[2])


if __name__ == "__main__":
    main()
