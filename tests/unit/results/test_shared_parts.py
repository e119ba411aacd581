"""Equal parts of results are held once; the results stay what they were."""

from __future__ import annotations

import gc
import tracemalloc

from bench_image.contract.result import RunResult
from tests.builders import make_failed, make_result
from trainbench.results.shared_parts import SharedParts

MOST_BYTES = 16_000  # of a result with 150 steps, whose step times alone are 5 kB; 32 kB when nothing is shared


def parsed(text: str) -> RunResult:
    return RunResult.model_validate_json(text)


def test_results_stay_equal_and_say_the_same() -> None:
    parts = SharedParts()
    texts = [make_result("node-1").model_dump_json(), make_result("node-2", 9.1).model_dump_json()]
    texts.append(make_failed("node-3", message="no").model_dump_json())

    for text in (*texts, *texts):
        assert parts.share(parsed(text)) == parsed(text)
        assert parts.share(parsed(text)).model_dump_json() == text


def test_equal_parts_are_one_and_different_ones_are_not() -> None:
    parts = SharedParts()
    one, two = (parts.share(parsed(make_result(f"node-{rank}", 9.0 + rank).model_dump_json())) for rank in (1, 2))

    assert one.spec.work is two.spec.work
    assert one.missing is two.missing
    assert one.spec.identity.node != two.spec.identity.node
    assert one.performance.samples_per_second != two.performance.samples_per_second


def test_one_and_true_and_a_fraction_are_not_the_same_part() -> None:
    parts = SharedParts()
    one, other = (parts.share(parsed(make_result("n", temperature_c=value).model_dump_json())) for value in (1.0, 2.0))

    assert one.telemetry != other.telemetry


def test_a_changed_copy_of_a_result_leaves_the_others_alone() -> None:
    parts = SharedParts()
    one, two = (parts.share(parsed(make_result(f"node-{rank}").model_dump_json())) for rank in (1, 2))
    changed = one.model_copy(update={"missing": {**one.missing, "cost": "a test"}})

    assert "cost" in changed.missing
    assert two.missing == parsed(make_result("node-2").model_dump_json()).missing
    assert two.model_fields_set == parsed(make_result("node-2").model_dump_json()).model_fields_set


def test_memory_grows_by_what_differs_only() -> None:
    """Results with windows and step times of their own; all that describes them repeats."""
    texts = [make_result(f"node-{n}", 9 + n / 100, windows=(1, 1 + n / 1e4, 1)).model_dump_json() for n in range(60)]
    parts = SharedParts()
    for text in texts[:10]:  # what all share, and what is imported on first use
        parts.share(parsed(text))
    gc.collect()
    tracemalloc.start()
    kept = [parts.share(parsed(text)) for text in texts[10:]]
    gc.collect()
    used, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert len(kept) == 50
    assert used / len(kept) < MOST_BYTES
