"""Which algorithm of cuBLASLt multiplies fastest under sustained load, for each large product of a LoRA step.

    python3 studies/measure_products.py OUT [--limit-s S]    on one GPU, in about 90 s; OUT gets products.json

For each product of Mistral-7B: what cuBLASLt proposes and, as far as its check accepts them, the same algorithms with
other tiles, clusters and options are timed briefly; the fastest run by turns with torch's own product. Every result is
compared with torch's. Then the products of a layer run in sequence, torch's and the chosen ones by turns. An algorithm
is chosen if it is at least 1 % faster than torch's product in each round.
"""

from __future__ import annotations

import argparse
import ctypes
import functools
import itertools
import json
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT), str(ROOT / "studies")]

import torch  # noqa: E402

from cublaslt import (  # noqa: E402
    ATTRIBUTES,
    COMPUTE_32F,
    R_16BF,
    R_32F,
    WORKSPACE_BYTES,
    Algorithm,
    Configuration,
    CublasLt,
    Heuristic,
    product_of,
)

T = TypeVar("T")
TILE_IDS, PREFERRED_WORKSPACE = 6, 1  # attributes of an algorithm's abilities, and of a preference
CLUSTERS = (0, 2, 3, 5, 6)  # automatic, 1 x 1, 2 x 1, 1 x 2, 2 x 2
KNOWN_TILES = (23, 24, 29, 30, 31, 32, 197, 201, 209, 248, 495)  # that cuBLASLt proposed for one of these products
PROPOSED, SCREENED, FINALISTS, ROUNDS = 32, 60, 7, 3
SEARCH_S, WARM_S, TURN_S, LAYER_TURN_S = 0.7, 1.0, 0.08, 0.6
EXPECTED_FLOPS = 680e12
LEAST_GAIN_PCT, LARGEST_ERROR_PCT = 1.0, 1.0
HIDDEN, INNER, KEY, ADAPTERS = 4096, 14_336, 1024, 16


class Shape(NamedTuple):
    """One product of a layer: x W^T (`forward`) or grad W; its summed and its produced features; calls per layer."""

    name: str
    forward: bool
    summed: int
    produced: int
    adds: bool
    calls: int = 1


SEVEN = (
    Shape("forward gate and up, B beside", True, HIDDEN + 2 * ADAPTERS, 2 * INNER, False),
    Shape("gradient gate, up", False, INNER, HIDDEN, True, 2),
    Shape("forward down", True, INNER, HIDDEN, True),
    Shape("gradient down, A below", False, HIDDEN + ADAPTERS, INNER, False),
    Shape("forward q, k, v", True, HIDDEN, HIDDEN + 2 * KEY, True),
    Shape("forward o", True, HIDDEN, HIDDEN, True),
    Shape("gradient q, o", False, HIDDEN, HIDDEN, True, 2),
    Shape("gradient k, v", False, KEY, HIDDEN, True, 2),
)
FROZEN = (
    Shape("forward gate and up, no adapters", True, HIDDEN, 2 * INNER, False),
    Shape("gradient gate, no adapters", False, INNER, HIDDEN, False),
    Shape("forward down, no adapters", True, INNER, HIDDEN, False),
    Shape("gradient down, no adapters", False, HIDDEN, INNER, False),
)


class Case:
    """One product with random matrices."""

    def __init__(self, lt: CublasLt, tokens: int, shape: Shape) -> None:
        of_weight = (shape.produced, shape.summed) if shape.forward else (shape.summed, shape.produced)
        weight = 0.02 * torch.randn(of_weight, device="cuda", dtype=torch.bfloat16)
        self.left = torch.randn(tokens, shape.summed, device="cuda", dtype=torch.bfloat16)
        self.right = weight.t() if shape.forward else weight
        self.out = torch.zeros(tokens, shape.produced, device="cuda", dtype=torch.bfloat16)
        self.lt, self.shape = lt, shape
        known = product_of(self.left, self.right, self.out, adds=shape.adds)
        assert known is not None
        self.product = known[0]
        self.layouts = lt.layouts(*known)
        self.flop = 2 * tokens * shape.summed * shape.produced

    def by_torch(self) -> None:
        torch.addmm(self.out, self.left, self.right, beta=int(self.shape.adds), out=self.out)

    def by(self, configuration: Configuration | None) -> Callable[[], None]:
        """The product with this algorithm; None: torch's own."""
        algorithm = self.lt.build(self.layouts, configuration) if configuration else None
        if algorithm is None:
            return self.by_torch
        return lambda: self.lt.multiply(self.layouts, algorithm, self.left, self.right, self.out, adds=self.shape.adds)

    def result(self, work: Callable[[], object]) -> torch.Tensor:
        """Of one call, on an output of ones, or of NaN where the product must overwrite it."""
        self.out.fill_(1.0 if self.shape.adds else float("nan"))
        work()
        torch.cuda.synchronize()
        return self.out.clone()

    def proposed(self) -> list[Algorithm]:
        """cuBLASLt's proposals, the best by its own estimate first."""
        preference, results, num = ctypes.c_void_p(), (Heuristic * PROPOSED)(), ctypes.c_int()
        limit = ctypes.c_uint64(WORKSPACE_BYTES)
        self.lt.call("MatmulPreferenceCreate", ctypes.byref(preference))
        self.lt.call("MatmulPreferenceSetAttribute", preference, PREFERRED_WORKSPACE, ctypes.byref(limit), 8)
        self.lt.call(
            "MatmulAlgoGetHeuristic", self.lt.handle, *self.layouts, self.layouts.out, preference, PROPOSED, results,
            ctypes.byref(num),
        )  # fmt: skip
        return [Algorithm.from_buffer_copy(result.algorithm) for result in results[: num.value] if not result.state]

    def others(self, proposed: list[Configuration]) -> list[Configuration]:
        """Further configurations that pass cuBLASLt's check, with known tiles first, within SEARCH_S."""
        begin, accepted = time.perf_counter(), []
        for number in sorted({each.id for each in proposed}):
            like = [each for each in proposed if each.id == number]
            able = abilities(self.lt, number, TILE_IDS)
            likely = list(dict.fromkeys([*(each.tile for each in like), *KNOWN_TILES]))
            rest = [tile for tile in able if tile not in likely]
            random.Random(0).shuffle(rest)  # noqa: S311
            clusters = list(dict.fromkeys([*(each.cluster for each in like), *CLUSTERS]))
            stages = sorted({each.stages for each in like})
            for tile, stage, cluster, custom, swizzle in itertools.product(
                likely + rest, stages, clusters, (0, 1), (0, 1)
            ):
                if time.perf_counter() - begin > SEARCH_S:
                    return accepted
                changes = {"tile": tile, "stages": stage, "cluster": cluster, "custom": custom, "swizzle": swizzle}
                configuration = like[0]._replace(**changes)
                if configuration not in proposed and self.lt.build(self.layouts, configuration):
                    accepted.append(configuration)
        return accepted


def configuration_of(lt: CublasLt, algorithm: Algorithm) -> Configuration:
    values = {}
    for name, attribute, kind in ATTRIBUTES:
        value, written = kind(), ctypes.c_size_t()
        lt.call(
            "MatmulAlgoConfigGetAttribute", ctypes.byref(algorithm), attribute, ctypes.byref(value),
            ctypes.sizeof(value), ctypes.byref(written),
        )  # fmt: skip
        values[name] = int(value.value)
    return Configuration(**values)


def abilities(lt: CublasLt, number: int, attribute: int) -> list[int]:
    """A list of numbers that an algorithm supports; its size is asked first, as cuBLASLt wants it exactly."""
    algorithm, size = Algorithm(), ctypes.c_size_t()
    lt.call("MatmulAlgoInit", lt.handle, COMPUTE_32F, R_32F, *[R_16BF] * 4, number, ctypes.byref(algorithm))
    lt.library.cublasLtMatmulAlgoCapGetAttribute(ctypes.byref(algorithm), attribute, None, 0, ctypes.byref(size))
    if not size.value:
        return []
    values = (ctypes.c_uint32 * (size.value // 4))()
    status = lt.library.cublasLtMatmulAlgoCapGetAttribute(
        ctypes.byref(algorithm), attribute, values, ctypes.sizeof(values), ctypes.byref(size)
    )
    return [] if status else list(values)


# Timing


def ms_of(work: Callable[[], object], times: int) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    for _ in range(times):
        work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / times


def turn_ms(work: Callable[[], object], expected_s: float, turn_s: float) -> float:
    """Milliseconds of one call, in a turn of about `turn_s`, after a third of one that is not timed."""
    times = max(3, round(turn_s / expected_s))
    ms_of(work, max(1, times // 3))
    return ms_of(work, times)


def sustain(work: Callable[[], object], seconds: float) -> None:
    begin = time.perf_counter()
    while time.perf_counter() - begin < seconds:
        ms_of(work, 10)


def error_pct(result: torch.Tensor, wanted: torch.Tensor) -> float:
    """Relative error by norms, %; of every 16th row."""
    difference, size = (result[::16].float() - wanted[::16].float()).norm(), wanted[::16].float().norm()
    return float(100 * difference / size)


def screened(case: Case, candidates: list[Configuration]) -> Iterator[tuple[float, Configuration]]:
    """Milliseconds of three calls, and the configuration, where the result is torch's."""
    wanted = case.result(case.by_torch)
    sustain(case.by_torch, WARM_S)
    for configuration in candidates[:SCREENED]:
        work = case.by(configuration)
        try:
            off = error_pct(case.result(work), wanted)
            if off < LARGEST_ERROR_PCT:
                yield ms_of(work, 3), configuration
            else:
                print(f"{case.shape.name}: {configuration} is off by {off} %")
        except RuntimeError as error:
            print(f"{case.shape.name}: {configuration}: {error}")


def measure(case: Case) -> dict[str, Any]:
    """TFLOP/s of torch's product and of the fastest candidates, by turns."""
    proposed = list(dict.fromkeys(configuration_of(case.lt, each) for each in case.proposed()))
    others = case.others(proposed)
    ranked = sorted(screened(case, proposed + others))
    runs = {"torch": case.by_torch} | {json.dumps(each): case.by(each) for _, each in ranked[:FINALISTS]}
    rates: dict[str, list[float]] = {name: [] for name in runs}
    for number in range(ROUNDS):
        for name, work in rotated(list(runs.items()), number):
            rates[name].append(case.flop / turn_ms(work, case.flop / EXPECTED_FLOPS, TURN_S) / 1e9)
    return {
        "product": case.product, "proposed": proposed, "others": len(others),
        "screened_tflops": [(case.flop / ms / 1e9, each) for ms, each in ranked], "tflops": rates,
    }  # fmt: skip


def rotated(items: list[T], number: int) -> list[T]:
    """Each round begins with another: what came before a turn changes its rate."""
    return items[number % len(items) :] + items[: number % len(items)]


def choice(rates: dict[str, list[float]]) -> str | None:
    """The configuration of the highest median, as JSON, if each round is LEAST_GAIN_PCT above torch's; else None."""
    best = max(rates, key=lambda name: statistics.median(rates[name]))
    gains = [100 * (ours / torchs - 1) for ours, torchs in zip(rates[best], rates["torch"], strict=True)]
    return best if min(gains) >= LEAST_GAIN_PCT else None


def check_rebuilt(case: Case) -> dict[str, list[bool]]:
    """For each proposal: does an algorithm made from its configuration give the same bits; does it within a graph?"""
    verdicts = {}
    matrices = case.left, case.right, case.out
    for algorithm in case.proposed():
        proposal = functools.partial(case.lt.multiply, case.layouts, algorithm, *matrices, adds=case.shape.adds)
        wanted = case.result(proposal)
        configuration = configuration_of(case.lt, algorithm)
        work = case.by(configuration)
        launched = case.result(work)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            work()
        replayed = case.result(graph.replay)
        known = case.lt.build(case.layouts, configuration) is not None
        verdicts[json.dumps(configuration)] = [known, torch.equal(launched, wanted), torch.equal(replayed, wanted)]
    return verdicts


def layer_by_turns(works: list[tuple[Case, Callable[[], None]]], rounds: int = 4) -> dict[str, Any]:
    """Milliseconds of a layer's products in sequence: torch's, and the chosen ones."""
    calls = [(case, work) for case, work in works for _ in range(case.shape.calls)]
    sequences = {
        "torch": lambda: [case.by_torch() for case, _ in calls],
        "chosen": lambda: [work() for _, work in calls],
    }
    flop = sum(case.flop for case, _ in calls)
    made: dict[str, list[float]] = {name: [] for name in sequences}
    for _ in range(rounds):
        for name, sequence in sequences.items():
            made[name].append(turn_ms(sequence, flop / EXPECTED_FLOPS, LAYER_TURN_S))
    return made | {"flop": flop}


def measure_all(output: Path, limit_s: float) -> None:
    begin = time.perf_counter()
    torch.zeros(1, device="cuda")
    lt = CublasLt(torch.device("cuda", 0))
    figures: dict[str, Any] = {
        "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "cublaslt": lt.version, "products": {},
        "rebuilt": check_rebuilt(Case(lt, 4096, SEVEN[5])), "layer_ms": {},
    }  # fmt: skip
    print(json.dumps(figures), flush=True)
    output.mkdir(parents=True, exist_ok=True)
    for tokens, shapes in ((16_384, SEVEN), (16_384, FROZEN), (4096, SEVEN)):
        works = []
        for shape in shapes:
            if time.perf_counter() - begin > limit_s:
                return
            case = Case(lt, tokens, shape)
            made = figures["products"][f"{shape.name}, {tokens} tokens"] = measure(case)
            _print(f"{shape.name}, {tokens}", made, time.perf_counter() - begin)
            chosen = choice(made["tflops"])
            works.append((case, case.by(Configuration(*json.loads(chosen)) if chosen else None)))
            (output / "products.json").write_text(json.dumps(figures) + "\n")
        name = f"{shapes[0].name}, {tokens} tokens"
        figures["layer_ms"][name] = layer_by_turns(works)
        print(name, figures["layer_ms"][name], flush=True)
        (output / "products.json").write_text(json.dumps(figures) + "\n")


def _print(name: str, made: dict[str, Any], seconds: float) -> None:
    rates = made["tflops"]
    order = sorted(rates, key=lambda each: -statistics.median(rates[each]))
    print(f"{name}: {len(made['proposed'])} proposed, {made['others']} others, after {seconds:.0f} s")
    for each in dict.fromkeys(["torch", *order[:4]]):
        print(f"    {each:50} {[round(rate, 1) for rate in rates[each]]}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", type=Path, metavar="OUT")
    parser.add_argument("--limit-s", type=float, default=600, help="no further product is begun after it")
    arguments = parser.parse_args()
    measure_all(arguments.output, arguments.limit_s)


if __name__ == "__main__":
    main()
