"""Suggestions for a misspelt name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MAX_SUGGESTIONS = 3
MIN_BEGINNING = 4  # letters


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """A phrase to put behind a wrong name: " (did you mean 'fsdp'?)", or "" where no choice is close."""
    by_lower = {choice.lower(): choice for choice in choices}
    close = get_close_matches(name.lower(), by_lower, n=MAX_SUGGESTIONS, cutoff=0.7)
    if not close and len(name) >= MIN_BEGINNING:
        # A long choice is often given by its beginning, which may be misspelt too: "stratgy" for strategy_scaling.
        beginnings = {choice: choice[: len(name) + 1] for choice in by_lower}
        near = get_close_matches(name.lower(), set(beginnings.values()), n=MAX_SUGGESTIONS, cutoff=0.8)
        close = [choice for choice, beginning in beginnings.items() if beginning in near][:MAX_SUGGESTIONS]
    names = [f"'{by_lower[each]}'" for each in close]
    return f" (did you mean {' or '.join(names)}?)" if names else ""
