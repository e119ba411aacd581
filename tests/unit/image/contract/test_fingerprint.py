"""The fingerprint: equal for equal work, different for each changed setting."""

from __future__ import annotations

import pytest

from bench_image.contract.fingerprint import fingerprint
from bench_image.contract.parse import parse_spec
from bench_image.contract.spec import Placement
from tests.builders import PARTS, make_spec
from tests.unit.image.contract.documents import Document


def test_the_fingerprint_is_12_hex_digits_of_the_work() -> None:
    spec = make_spec()

    assert len(spec.fingerprint) == 12
    assert int(spec.fingerprint, 16) >= 0
    assert spec.fingerprint == parse_spec(spec.model_dump_json()).fingerprint


@pytest.mark.filterwarnings("ignore:Pydantic serializer warnings")  # of the value that no field takes
@pytest.mark.parametrize(
    ("part", "field"), [(part, field) for part in PARTS for field in PARTS[part].model_fields if field != "own_job"]
)
def test_every_field_of_work_placement_and_measurement_enters_the_fingerprint(part: str, field: str) -> None:
    """A new field enters by itself: comparing unequal work must be impossible by accident."""
    spec = make_spec()
    changed = spec.changed(**{part: {field: "something else"}}).fingerprint != spec.fingerprint

    assert changed == (part != "identity")


def test_a_setting_added_later_changes_the_fingerprint_only_where_it_is_set() -> None:
    class Later(Placement):
        added: int | None = None

    assert fingerprint(Later()) == fingerprint(Placement())
    assert fingerprint(Later(added=1)) != fingerprint(Placement())


def test_no_lora_no_quantisation_and_no_dimensions_are_hashed() -> None:
    """A full fine-tuning is known by what it lacks: the fingerprints of stored results hold these nulls."""
    fields = make_spec(recipe="full").work.canonical()

    assert (fields["lora"], fields["quantisation"], fields["dimensions"]) == (None, None, None)


@pytest.mark.parametrize(
    ("parts", "changes", "is_equal"),
    [
        (("work", "measurement"), {"strategy": "zero3", "nodes": 2, "gpus_per_node": 4}, True),
        (("work", "measurement"), {"strategy": "zero3", "gpus_per_node": 4, "gradient_accumulation_steps": 4}, False),
        (("work", "measurement"), {"warmup_steps": 3}, False),
        (("work", "placement"), {"warmup_steps": 3, "repeats": 1, "measured_steps": 5}, True),
        (("work", "placement"), {"warmup_steps": 3, "micro_batch_size": 4}, False),
    ],
)
def test_a_comparison_lets_differ_what_it_compares_and_nothing_else(
    parts: tuple[str, ...], changes: Document, is_equal: bool
) -> None:
    one, other = (fingerprint(*(getattr(spec, part) for part in parts)) for spec in (make_spec(), make_spec(**changes)))

    assert (one == other) == is_equal


def test_no_two_parts_have_a_field_of_one_name() -> None:
    """Fingerprints hash the fields of several parts side by side."""
    names = [name for part in PARTS.values() for name in part.model_fields]

    assert len(names) == len(set(names))
