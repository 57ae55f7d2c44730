"""The result of a part.

Owns: the form of a result, as bench/README.md describes it, and ratios: the median
of the ratios of all rounds, each of two numbers of the same round.
"""

import json
from statistics import median


class NoNumbers(Exception):
    """A series, a curve or a ratio has no number."""


class Result:
    """Numbers of one part: series, plots, checks and notes."""

    def __init__(self, part, title):
        self.part = part
        self.title = title
        self.series = []
        self.plots = []
        self.checks = []
        self.notes = []

    def add_series(self, name, unit, rounds):
        """Adds a series, which has one number for each round."""
        self.series.append({"name": name, "unit": unit, "rounds": rounds})

    def add_all(self, unit, rounds_by_name):
        for name, rounds in rounds_by_name.items():
            self.add_series(name, unit, rounds)

    def rounds(self, name):
        return next(s["rounds"] for s in self.series if s["name"] == name)

    def add_plot(self, title, axes, why):
        """Adds a plot. Axes: the labels of x and y. Why: sentences about the curves' form."""
        self.plots.append({"title": title, "x": axes[0], "y": axes[1], "why": why,
                           "curves": []})

    def add_curve(self, name, rounds_by_size):
        """Adds a curve to the last plot."""
        self.plots[-1]["curves"].append({
            "name": name, "x": list(rounds_by_size),
            "rounds": list(rounds_by_size.values())})

    def check(self, target, what, value, sense, limit):
        """Sense: "at least" or "at most"."""
        passed = value >= limit if sense == "at least" else value <= limit
        self.checks.append({
            "target": target, "what": what, "value": value,
            "sense": sense, "limit": limit, "passed": passed})

    def missing(self):
        """Returns the names of series and curves without a number."""
        return missing(vars(self))

    def check_ratio(self, target, what, rounds, others, sense, limit):
        self.check(target, what, ratio(rounds, others), sense, limit)

    def note(self, text):
        self.notes.append(text)

    def note_ratio(self, text, rounds, others):
        """Adds a sentence; the ratio replaces its {}."""
        self.note(text.format(number(ratio(rounds, others))))

    def text(self):
        """Returns the text for the terminal."""
        lines = [self.title]
        for one in self.series:
            numbers = " ".join(number(value) for value in one["rounds"])
            lines.append(f"  {one['name']}: {number(median(one['rounds']))}"
                         f" {one['unit']} ({numbers})")
        for plot in self.plots:
            lines.append(f"  {plot['title']}: {plot['y']}")
            for curve in plot["curves"]:
                points = ", ".join(f"{x}: {number(median(rounds))}" for x, rounds
                                   in zip(curve["x"], curve["rounds"]))
                lines.append(f"    {curve['name']}: {points}")
        for check in self.checks:
            lines.append(f"  {check['target']}: {check['what']}:"
                         f" {number(check['value'])}, {check['sense']}"
                         f" {number(check['limit'])}:"
                         f" {'holds' if check['passed'] else 'MISSED'}")
        return "\n".join(lines + [f"  {note}" for note in self.notes])

    def write(self, path, **more):
        if self.missing():
            raise NoNumbers(f"{self.part}: no number for {', '.join(self.missing())}")
        with open(path, "w", encoding="utf-8") as file:
            json.dump({**vars(self), **more}, file, indent=1)
            file.write("\n")


def missing(part):
    """Returns the names of a part's series and curves without a number."""
    names = [one["name"] for one in part["series"] if not one["rounds"]]
    for plot in part["plots"]:
        names += [f"{plot['title']}: {curve['name']}" for curve in plot["curves"]
                  if not curve["rounds"] or not all(curve["rounds"])]
    if not part["series"] and not part["plots"]:
        names.append("anything")
    return names


def number(value):
    """Formats with three digits, or more if there are more before the point."""
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def per_second(count, seconds):
    """Returns a rate of at least one event, an upper bound, so that a ratio exists."""
    return max(count, 1) / seconds


def ratio(rounds, others):
    if not rounds or not others:
        raise NoNumbers("a ratio of no numbers")
    return median(mine / theirs for mine, theirs in zip(rounds, others))
