"""Suggestions for misspelt names."""

from __future__ import annotations

import pytest

from trainbench.core.close_matches import did_you_mean


@pytest.mark.parametrize(
    ("name", "phrase"),
    [
        ("fdsp", " (did you mean 'fsdp'?)"),
        ("FSDP", " (did you mean 'fsdp'?)"),
        ("mistral7b", " (did you mean 'mistral-7b'?)"),
        ("mistrl", " (did you mean 'mistral-7b'?)"),
        ("tier", " (did you mean 'tier-a'?)"),
        ("horse", ""),
        ("", ""),
    ],
)
def test_a_close_name_is_suggested_and_a_distant_one_is_not(name: str, phrase: str) -> None:
    assert did_you_mean(name, ["single", "ddp", "fsdp", "mistral-7b", "tier-a"]) == phrase
