"""The glossary of the reports: each figure, from the catalogue, and each state in one or two sentences."""

from __future__ import annotations

from trainbench.figure_catalogue.catalogue import FIGURES as CATALOGUE

FIGURES = tuple((each.label, f"{each.read} Field: {each.field}.") for each in CATALOGUE if each.read)
MORE = (
    "The first cell of a row links to a result.json; in a row for several runs, to that of the run with the median "
    "samples/s. docs/figures.md of trainbench gives the formula, the function and the test of every figure."
)

STATES = (
    ("ok", "Within all limits."),
    ("notice", "Outside a limit once, but the re-run did not confirm it; or faster than its own history. Not red."),
    ("breach", "Outside a limit; the text names the side, slow or fast. Red."),
    ("watched", "Slow by more than half of the limit and more than chance: a warning, not red; closes no open breach."),
    ("insufficient", "Too few nodes, or more noise than the limit: the reason gives the figures. Not red."),
    ("failed", "Ran, but gave no valid result. Red."),
    ("missing", "Expected, but did not run. Red."),
    ("busy", "Its GPUs were taken by other work. Not judged."),
    ("not judged", "This figure cannot be judged here, such as a temperature without a GPU."),
    ("no baseline", "Too few past runs to compare with."),
)  # fmt: skip
