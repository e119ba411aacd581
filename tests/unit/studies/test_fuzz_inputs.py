"""Damaged documents, a fixed number for each reader; docs/internals/security.md tells of the long study."""

from __future__ import annotations

from pathlib import Path

import pytest

from fuzz_inputs import Reader, fuzz, readers, study

INPUTS = {"history": 20, "verdict": 50}  # each of the others, which take less time: 150


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Reader]:
    return dict(readers(tmp_path_factory.mktemp("hostile")))


def test_every_reader_takes_its_undamaged_document(known: dict[str, Reader]) -> None:
    for reader in known.values():
        reader.read(reader.document)


def test_every_answer_to_a_damaged_document_is_a_value_or_a_sentence(known: dict[str, Reader]) -> None:
    answers = {name: fuzz(name, reader, range(INPUTS.get(name, 150)), seed=7) for name, reader in known.items()}

    assert {name: actual.surprises for name, actual in answers.items() if actual.surprises} == {}
    assert all(actual.refused for name, actual in answers.items() if name != "exit codes")


def test_an_answer_of_another_kind_is_noted_with_the_seed_that_made_it(tmp_path: Path) -> None:
    def careless(content: bytes) -> object:
        return content.decode()

    surprises = fuzz("text", Reader(b"{}" * 50, careless, ()), range(50), seed=7).surprises
    assert surprises
    assert surprises[0].seed.startswith("7 text ")
    assert "UnicodeDecodeError" in surprises[0].error


def test_the_inputs_do_not_depend_on_the_number_of_processes(tmp_path: Path) -> None:
    def known(processes: int) -> dict[str, tuple[int, int]]:
        folder = tmp_path / str(processes)
        folder.mkdir()
        return {name: (actual.inputs, actual.refused) for name, actual in study(folder, 30, 7, processes).items()}

    assert known(1) == known(2)
