"""Whole campaigns for the tests of the reports; verdicts are given, not computed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date, timedelta
from typing import Any

from bench_image.contract.options import Recipe, Strategy
from bench_image.contract.result import Chosen, RunResult
from bench_image.contract.spec import Drill
from bench_image.contract.work import Lora, Quantisation
from tests.builders import STARTED_AT, make_cpu_result, make_failed, make_result
from tests.builders.verdicts import make_comparison, make_finding, make_group, make_node
from trainbench.core.verdicts import (
    Against,
    Finding,
    GroupVerdict,
    Level,
    Metric,
    NodeVerdict,
    Why,
)
from trainbench.params.campaign_kind import CampaignKind
from trainbench.planning.plan import Skipped
from trainbench.prices.price_tables import given_price
from trainbench.prices.run_cost import priced
from trainbench.results.campaign import Campaign

USD_PER_GPU_HOUR = 0.60


def at_price(result: RunResult, usd_per_gpu_hour: float | None = USD_PER_GPU_HOUR) -> RunResult:
    """Prices by hand: 0.60 $/h at 1.46 samples/s is 0.60 / 5256 * 1000 = $0.1142 per 1K samples."""
    if usd_per_gpu_hour is None:
        return priced(result, None)
    price = given_price(usd_per_gpu_hour, None).model_copy(update={"as_of": date(2026, 1, 4)})
    made = priced(result, price)
    return made.model_copy(update={"cost": made.cost.model_copy(update={"price_source": "OCI price page"})})


def make_campaign(
    results: Sequence[RunResult],
    groups: Sequence[GroupVerdict] = (),
    /,
    *,
    params: Mapping[str, object] | None = None,
    usd_per_gpu_hour: float | None = USD_PER_GPU_HOUR,
    **fields: Any,
) -> Campaign:
    defaults = {
        "campaign_id": "manual-2026-11-21",
        "suite": "node_consistency",
        "title": "mistral-7b qlora, batch 8 x 512 tokens, on 4 nodes",
        "started_at": STARTED_AT,
        "finished_at": STARTED_AT + timedelta(minutes=12, seconds=2),
        "params": dict(params or {"model": "mistral-7b", "rounds": 2, "nodes": None}),
        "skipped": (),
        "results": tuple(at_price(result, usd_per_gpu_hour) for result in results),
        "groups": tuple(groups),
        "findings": (),
    }
    return Campaign(**defaults | fields)


def judged(*nodes: NodeVerdict, **fields: Any) -> Campaign:
    """A campaign of these verdicts on one work; without results unless `results` are among the `fields`."""
    return make_campaign(fields.pop("results", ()), [make_group(nodes, fields.pop("group_id", "g"))], **fields)


def each_alone(results: Sequence[RunResult]) -> list[GroupVerdict]:
    """The groups of runs that have no peer, each on its only node."""
    of_works = {result.spec.identity.group_id: result for result in results}
    return [
        make_group(
            [
                make_node(
                    run.spec.identity.node, run.performance.samples_per_second, why=Why.NOTHING_TO_COMPARE, num_runs=1
                )
            ],
            group_id,
        )
        for group_id, run in of_works.items()
    ]


def gpu_node(name: str, rate: float, temperature_c: float = 61.0, **fields: Any) -> NodeVerdict:
    """A node of the A10 fleet with its three figures, against its peers and, with `past`, against its own past."""
    made = make_node(name, rate, memory_gb=19.8, temperature_c=temperature_c, noise_pct=0.3, **fields)
    others = (
        make_comparison(19.8, 19.8, metric=Metric.MEMORY_GB),
        make_comparison(temperature_c, 61.0, metric=Metric.TEMPERATURE_C),
    )
    return made.model_copy(update={"comparisons": (*made.comparisons, *others)})


def a10(node: str, rate: float, round: int = 1, **fields: Any) -> RunResult:
    return make_result(
        node,
        rate,
        round=round,
        gpu_name="NVIDIA A10",
        memory_gb=fields.pop("memory_gb", 19.8),
        memory_total_gb=24.0,
        temperature_c=fields.pop("temperature_c", 61.0),
        power_w=148.0,
        sm_clock_mhz=fields.pop("sm_clock_mhz", 1650.0),
        h2d_gb_per_s=24.1,
        **fields,
    )


def healthy() -> Campaign:
    """Four A10 nodes, two rounds, as in the reference guide: 1.46, 1.45, 1.47, 1.44 samples/s."""
    rates = {"node-1": 1.46, "node-2": 1.45, "node-3": 1.47, "node-4": 1.44}
    references = {"node-1": 1.45, "node-2": 1.46, "node-3": 1.45, "node-4": 1.46}
    results = [a10(node, rate * (1 + 0.002 * (-1) ** round), round) for round in (1, 2) for node, rate in rates.items()]
    nodes = [
        gpu_node(name, rate, 60.0 + i, peers=references[name], past=1.455, reason="within its limits")
        for i, (name, rate) in enumerate(rates.items())
    ]
    return make_campaign(results, [make_group(nodes, results[0].spec.identity.group_id)])


def slow_node() -> Campaign:
    """node-3 runs at 81 degC and 1.31 samples/s; the re-run confirms it."""
    rates = {"node-1": 1.46, "node-2": 1.45, "node-3": 1.31, "node-4": 1.44}
    hot = {"temperature_c": 81.0, "sm_clock_mhz": 1410.0, "throttle_share_pct": {"thermal": 38.0}}
    results = [
        a10(node, rate * (1 + 0.002 * (-1) ** round), round, **(hot if node == "node-3" else {}))
        for round in (1, 2)
        for node, rate in rates.items()
    ]
    results.append(a10("node-3", 1.32, 3, **hot))
    nodes = [
        gpu_node("node-1", 1.46, peers=1.44),
        gpu_node("node-2", 1.45, peers=1.44),
        gpu_node(
            "node-3",
            1.31,
            81.0,
            peers=1.45,
            past=1.452,
            why=Why.SLOW,
            reason="samples/s −9.7 % against the median of 3 peers, −9.0 % in the re-run, limit 5.0 %",
        ),
        gpu_node("node-4", 1.44, peers=1.45),
    ]
    finding = make_finding(
        "node-3",
        category="thermal_throttling",
        measured="thermal throttling in 38 % of the samples, SM clock 1410 MHz",
        expected="none, SM clock 1650 MHz as on its peers",
        summary="is slow: samples/s −9.7 % against the median of 3 peers, −9.0 % in the re-run, limit 5.0 %",
        cause="The GPU of node-3 slows itself down because it is hot",
        resolution="Check fans, filters and the air flow of node-3, then run it again",
    )
    other = Finding(
        level=Level.WARNING,
        category="stale_price",
        item="OCI price page",
        measured="price of 2026-01-04",
        expected="not older than 180 days",
        summary="the price is old",
        resolution="Look the price up again",
    )
    skipped = Skipped(what="strategy ddp", reason="needs at least 2 GPUs per node, gpus_per_node is 1")
    return make_campaign(
        results,
        [make_group(nodes, results[0].spec.identity.group_id)],
        findings=(finding, other),
        skipped=(skipped,),
    )


def cpu_drill() -> Campaign:
    """Four local CPU nodes; node-3 was slowed by 75 % on purpose and detected."""
    rates = {"node-1": 41.0, "node-2": 38.5, "node-3": 9.8, "node-4": 43.2}
    references = {"node-1": 38.5, "node-2": 41.0, "node-3": 41.0, "node-4": 38.5}
    results = [
        make_cpu_result(
            node,
            rate * (1 + 0.06 * (-1) ** round),
            round=round,
            drill=Drill(slowdown_pct=75) if node == "node-3" else None,
        )
        for round in (1, 2)
        for node, rate in rates.items()
    ]
    results.append(make_cpu_result("node-3", 10.1, round=3, drill=Drill(slowdown_pct=75)))
    nodes = []
    for name, rate in rates.items():
        is_drilled = name == "node-3"
        drilled = {
            "why": Why.SLOW,
            "is_drill": True,
            "reason": "samples/s −76.1 % against the median of 3 peers, −75.4 % in the re-run, limit 25.0 %",
        }
        comparisons = (
            make_comparison(rate, references[name], limit=25.0, chance=21.0),
            make_comparison(0.6, 0.6, metric=Metric.MEMORY_GB),
        )
        more = drilled if is_drilled else {"reason": "within its limits"}
        nodes.append(
            make_node(name, rate, comparisons=comparisons, memory_gb=0.6, noise_pct=8.5, gpu_name=None, **more)
        )
    group = make_group(nodes, results[0].spec.identity.group_id, gpu_name=None, noise_pct=8.5, detectable_pct=21.0)
    title = "tiny qlora, batch 8 x 64 tokens, on 4 nodes"
    return make_campaign(results, [group], title=title, params={"model": "tiny", "rounds": 2, "drill_node": "node-3"})


def all_failed() -> Campaign:
    """Nothing was measured; the messages are as hostile as a log can be."""
    results = [
        make_failed("node-1"),
        make_failed("node-2", kind="no_result", message="<script>alert('x')</script> | a | b\n# not a heading\n`rm`"),
    ]
    nodes = [
        make_node(
            result.spec.identity.node,
            None,
            why=Why.FAILED,
            num_runs=1,
            reason=f"no valid run: {result.error.message if result.error else ''}",
        )
        for result in results
    ]
    nodes.append(make_node("node-<b>9|", None, why=Why.MISSING, reason="planned, but no run was seen"))
    group = make_group(nodes, results[0].spec.identity.group_id, gpu_name=None, noise_pct=None, detectable_pct=None)
    return make_campaign(results, [group], usd_per_gpu_hour=None)


def two_nodes() -> Campaign:
    """Too few nodes to say which one is wrong."""
    results = [a10("node-1", 1.46), a10("node-2", 1.30)]
    reason = "2 nodes: they differ by 11.6 %, and neither a past nor a level says which one is off"
    nodes = [
        gpu_node("node-1", 1.46, peers=1.30, why=Why.PAIR, num_runs=1, reason=reason),
        gpu_node("node-2", 1.30, peers=1.46, why=Why.PAIR, num_runs=1, reason=reason),
    ]
    group = make_group(nodes, results[0].spec.identity.group_id, noise_pct=None, detectable_pct=None)
    return make_campaign(results, [group], params={"model": "mistral-7b", "rounds": 1})


def one_box() -> Campaign:
    """A single H200 whose level is known: well in its first night, and the report says by what."""
    results = [make_result("box-1", rate, round=i, gpu_name="NVIDIA H200") for i, rate in enumerate((37.7, 37.9), 1)]
    level = make_comparison(37.8, 37.9, Against.LEVEL, source="the H200's level", limit=4.0)
    reason = "37.8 samples/s, 99.7 % of the H200's level of 37.9, band 96 to 104 %"
    node = make_node("box-1", 37.8, comparisons=(level,), temperature_c=61.0, reason=reason, gpu_name="NVIDIA H200")
    group = make_group([node], results[0].spec.identity.group_id, gpu_name="NVIDIA H200", detectable_pct=None)
    return make_campaign(results, [group], title="mistral-7b qlora, batch 8 x 512 tokens, on 1 node")


def scaling() -> Campaign:
    """1, 2 and 4 GPUs of one node: 10, 18 and 32 samples/s."""
    results = [
        a10("node-1", 10.0),
        a10("node-1", 18.0, strategy=Strategy.DDP, gpus_per_node=2),
        a10("node-1", 32.0, strategy=Strategy.DDP, gpus_per_node=4),
    ]
    return make_campaign(results)


# Made, not measured: GPUs -> tokens/s, and GB of memory.
STRATEGY_FIGURES = {
    "single": ({1: 4_600.0}, 13.9),
    "ddp": ({2: 8_400.0, 4: 12_200.0}, 14.0),
    "fsdp": ({2: 6_800.0, 4: 9_400.0}, 10.9),
    "zero2": ({2: 11_000.0, 4: 18_100.0}, 10.5),
    "zero3": ({2: 9_800.0, 4: 16_000.0}, 9.7),
}


def strategy_results(
    recipes: Sequence[str] = ("full", "lora"), sizes: Sequence[int] = (1, 2, 4), **fields: Any
) -> list[RunResult]:
    """All five strategies on tier-a, 2048 tokens; sizes beyond those of the table keep 80 % of the rate per GPU."""
    results = []
    for recipe in recipes:
        for strategy, (rates, memory_gb) in STRATEGY_FIGURES.items():
            for gpus in (1,) if strategy == "single" else [size for size in sizes if size > 1]:
                known = min(gpus, max(rates))
                tokens_per_s = rates[known] * (gpus / known) * 0.8 ** (gpus > known)
                work = {
                    "model": "tier-a",
                    "recipe": recipe,
                    "seq_length": 2048,
                    "micro_batch_size": 1,
                    "gradient_accumulation_steps": 4,
                    "optimizer": "adamw_torch",
                    "gradient_checkpointing": False,
                }
                rate = tokens_per_s / 2048 * {"full": 1.0, "lora": 1.4, "qlora": 1.1}[recipe]
                made = {"memory_gb": memory_gb * {"full": 1.0, "lora": 0.6, "qlora": 0.4}[recipe]}
                made |= {"exposed_communication_pct": None if gpus == 1 else 3.0 * gpus}
                results.append(a10("node-1", rate, strategy=strategy, gpus_per_node=gpus, **(work | made | fields)))
    return results


def strategies() -> Campaign:
    """Five strategies x 1, 2 and 4 GPUs, full and LoRA; zero2 full also without accumulation; one OOM, one skipped."""
    results = strategy_results()
    unequal = [
        r
        for r in strategy_results(("full",), (4,), gradient_accumulation_steps=1)
        if r.spec.placement.strategy == "zero2"
    ]
    work = results[1].spec.work.model_dump(include={"model", "recipe", "seq_length", "micro_batch_size", "optimizer"})
    work |= {"gradient_accumulation_steps": 4, "gradient_checkpointing": False, "gpus_per_node": 8}
    oom = make_failed("node-1", strategy="ddp", **work)
    skipped = Skipped(
        what="strategy zero3",
        reason="needs 16 GPUs, the node has 8: choose fewer gpus_per_node",
        strategy=Strategy.ZERO3,
        gpus_per_node=16,
        nodes=("node-1",),
    )
    title = "tier-a full and lora, batch 1 x 2048 tokens, on 1 node"
    params = {"model": "tier-a", "rounds": 1, "micro_batch_size": 1, "seq_length": 2048}
    kind = {"suite": "strategy_scaling", "campaign_kind": CampaignKind.STRATEGIES}
    return make_campaign([*results, *unequal, oom], title=title, params=params, skipped=(skipped,), **kind)


# As in the reference guide: samples/s on one A10, and GB of memory (the memory is made).
CONFIGURATION_FIGURES: dict[str, tuple[float, float, dict[str, Any]]] = {
    "baseline": (0.69, 14.2, {}),
    "adamw_torch": (0.69, 14.3, {"optimizer": "adamw_torch"}),
    "LoRA r8": (0.6914, 14.1, {"lora": Lora(rank=8)}),
    "seq 512": (1.30, 10.1, {"seq_length": 512}),
    "seq 512 + batch 8": (1.46, 14.0, {"seq_length": 512, "micro_batch_size": 8}),
    "fp16": (0.66, 14.2, {"precision": "fp16"}),
    "QLoRA + checkpointing": (0.72, 14.6, {"quantisation": Quantisation(double=False)}),
}
BASE_WORK = {"micro_batch_size": 4, "seq_length": 1024}


def configurations(nodes: Sequence[str] = ("gpu-1",), rounds: int = 3, **fields: Any) -> Campaign:
    """The guide's six configurations and some more on A10s; round 2 is 1 % slower for all of them."""
    results, labels = [], {}
    for round_ in range(1, rounds + 1):
        for node in nodes:
            for i, (name, (rate, memory_gb, changes)) in enumerate(CONFIGURATION_FIGURES.items()):
                of_round = 0.99 if round_ == 2 else 1.0
                wobble = 1 + 0.002 * ((i + round_) % 3 - 1)  # of one run against another
                made: dict[str, Any] = {"memory_gb": memory_gb, "campaign_id": "diagnosis-1", **BASE_WORK, **changes}
                result = a10(node, rate * of_round * wobble, round_, **made)
                labels[result.spec.identity.group_id] = name
                results.append(result)
            off = make_failed(node, round=round_, campaign_id="diagnosis-1", gradient_checkpointing=False, **BASE_WORK)
            labels[off.spec.identity.group_id] = "checkpointing off"
            results.append(off)
    skipped = (
        Skipped(
            what="QLoRA + both",
            label="QLoRA + both",
            reason="with these parameters it does the same work as 'baseline', whose runs count for both",
            group_id=results[0].spec.identity.group_id,
        ),
        Skipped(
            what="QLoRA plain",
            label="QLoRA plain",
            reason="needs about 27.1 GB of GPU memory, a GPU of the node (NVIDIA-A10) has 24.1 GB",
            nodes=tuple(nodes),
            gpu_product="NVIDIA-A10",
            group_id="plain",
        ),
    )
    defaults = {
        "suite": "config_diagnosis",
        "title": "mistral-7b qlora, on 1 node",
        "campaign_kind": CampaignKind.CONFIGURATIONS,
        "labels": labels,
        "skipped": skipped,
        "params": {"model": "mistral-7b", "rounds": rounds},
    }
    return make_campaign(results, **defaults | fields)


# Made, near the reference tables: tokens/s, GB of memory and micro-batch on each GPU.
SURVEY_FIGURES: dict[str, dict[str, tuple[float, float, int]]] = {
    "full": {"NVIDIA A100-SXM4-80GB": (2_100.0, 56.0, 4)},
    "lora": {"NVIDIA A100-SXM4-80GB": (5_420.0, 19.6, 8), "NVIDIA A10": (1_800.0, 16.8, 4)},
    "qlora": {"NVIDIA A100-SXM4-80GB": (4_000.0, 10.1, 4), "NVIDIA A10": (1_500.0, 12.6, 8)},
}
SURVEY_NODES = {"NVIDIA A100-SXM4-80GB": "big-1", "NVIDIA A10": "small-1"}
SURVEY_PRICES = {"NVIDIA A100-SXM4-80GB": 2.0, "NVIDIA A10": 0.6}
SURVEY_SEQ = 1024


def survey(gpus: Sequence[str] = tuple(SURVEY_NODES), **fields: Any) -> Campaign:
    """llama2-7b on an A100 and an A10: full does not fit the A10, and the only H100 is away."""
    results, labels = [], {}
    for recipe, of_gpu in SURVEY_FIGURES.items():
        for gpu in [name for name in of_gpu if name in gpus]:
            tokens_per_s, memory_gb, size = of_gpu[gpu]
            result = make_result(
                SURVEY_NODES[gpu],
                tokens_per_s / SURVEY_SEQ,
                gpu_name=gpu,
                memory_gb=memory_gb,
                memory_total_gb=24.0 if gpu == "NVIDIA A10" else 80.0,
                campaign_id="survey-1",
                model="llama2-7b",
                recipe=recipe,
                seq_length=SURVEY_SEQ,
                micro_batch_size="auto",
                optimizer="adamw_torch",
                chosen=Chosen(
                    micro_batch_size=size, gradient_checkpointing=True, why="the fastest that fits", execution={}
                ),
            )
            labels[result.spec.identity.group_id] = f"llama2-7b {recipe}"
            results.append(result)
    skipped = (
        Skipped(
            what="llama2-7b full on NVIDIA-A10",
            label="llama2-7b full",
            model="llama2-7b",
            recipe=Recipe.FULL,
            reason="needs about 54.2 GB of GPU memory, a GPU of the node (NVIDIA-A10) has 24.1 GB",
            nodes=("small-1",),
            gpu_product="NVIDIA-A10",
        ),
        Skipped(
            what="everything on NVIDIA-H100-80GB-HBM3",
            reason="h100-1: cordoned",
            nodes=("h100-1",),
            gpu_product="NVIDIA-H100-80GB-HBM3",
        ),
    )
    defaults = {
        "suite": "hardware_survey",
        "title": "llama2-7b full, lora and qlora, on 2 nodes",
        "campaign_kind": CampaignKind.HARDWARE,
        "labels": labels,
        "skipped": skipped if len(gpus) > 1 else (),
        "params": {"models": ["llama2-7b"], "purchase_usd": {"A100 80GB": 15_000.0}, "budgets_usd": [500, 20_000]},
        "results": tuple(at_price(r, SURVEY_PRICES[r.context.gpus[0].name]) for r in results if r.context),
    }
    return make_campaign(results, **defaults | fields)


# One of each kind whose reports are golden files.
REPORTED = (healthy, slow_node, cpu_drill, all_failed, two_nodes, one_box, strategies, configurations, survey)
