"""Suggestions for a misspelt name."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches

MAX_SUGGESTIONS = 3


def did_you_mean(name: str, choices: Iterable[str]) -> str:
    """A phrase to put behind a wrong name: " (did you mean 'fsdp'?)", or "" where no choice is close."""
    by_lower = {choice.lower(): choice for choice in choices}
    close = get_close_matches(name.lower(), by_lower, n=MAX_SUGGESTIONS, cutoff=0.7)
    names = [f"'{by_lower[each]}'" for each in close]
    return f" (did you mean {' or '.join(names)}?)" if names else ""
