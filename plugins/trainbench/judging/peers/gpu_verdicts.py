"""Folds the verdicts of a node's GPUs into one: that of its worst GPU, named by index and UUID."""

from __future__ import annotations

from collections.abc import Sequence

from trainbench.core.formats import count
from trainbench.core.verdicts import Confirmation, GpuVerdict, Metric, NodeVerdict, State
from trainbench.judging.node_runs import GpuPlace

_WORST_FIRST = (
    State.FAILED,
    State.MISSING,
    State.BREACH,
    State.INSUFFICIENT,
    State.NO_BASELINE,
    State.NOTICE,
    State.NOT_JUDGED,
    State.BUSY,
    State.OK,
)
_CONFIRMATIONS = (
    Confirmation.PENDING,
    Confirmation.CONFIRMED,
    Confirmation.INCONCLUSIVE,
    Confirmation.NOT_PLANNED,
    Confirmation.NOT_CONFIRMED,
    Confirmation.NOT_NEEDED,
)
_MAX_NAMED = 3


def gpu_verdict(place: GpuPlace, of_it: NodeVerdict) -> GpuVerdict:
    """The verdict on one GPU. `of_it`: the verdict on the GPU's own runs, as if it were a node."""
    gpu = GpuVerdict(
        index=place.index,
        uuid=place.uuid,
        **{name: getattr(of_it, name) for name in GpuVerdict.model_fields.keys() - {"index", "uuid"}},
    )
    named = tuple(metric.model_copy(update={"gpu": gpu.name}) for metric in gpu.metrics)
    return gpu.model_copy(update={"metrics": named})


def fold_gpus(of_node: NodeVerdict, gpus: Sequence[GpuVerdict]) -> NodeVerdict:
    """The node's verdict, folded from its GPUs'. `of_node`: the verdict on runs without any GPU (failed, or no free
    node), or on any of the node's runs.

    A run that failed as a whole makes the node fail. A run for which the node was not free does not, where other runs
    measured it.
    """
    state = min((gpu.state for gpu in gpus), key=_WORST_FIRST.index)
    whole_failed = of_node.state in (State.FAILED, State.MISSING) and not of_node.gpus
    worst = min(gpus, key=badness)
    parts = [of_node.reason] if whole_failed else []
    factors = [gpu.unsteady_factor for gpu in gpus if gpu.unsteady_factor is not None]
    final = of_node.state if whole_failed else state
    return of_node.model_copy(
        update={
            "gpu_name": of_node.gpu_name,
            "state": final,
            "metrics": worst.metrics,
            "num_runs": max(gpu.num_runs for gpu in gpus),
            "confirmation": Confirmation.NOT_NEEDED
            if whole_failed
            else min((gpu.confirmation for gpu in gpus), key=_CONFIRMATIONS.index),
            "confirm_deviation_pct": worst.confirm_deviation_pct,
            "reason": "; ".join([*parts, *_reasons(gpus, state)]),
            "is_watched": final is State.OK and any(gpu.is_watched for gpu in gpus),
            "is_unsteady": any(gpu.is_unsteady for gpu in gpus),
            "unsteady_factor": max(factors, default=None),
            "disturbed_rounds": tuple(sorted({r for gpu in gpus for r in gpu.disturbed_rounds})),
            "gpus": tuple(gpus),
        }
    )


def _reasons(gpus: Sequence[GpuVerdict], state: State) -> list[str]:
    """The reasons of the GPUs in the node's state, each with its name, and those of the watched ones."""
    named = [gpu for gpu in gpus if gpu.state is state and (state is not State.OK or gpu.is_watched)]
    named += [gpu for gpu in gpus if gpu.state is not state and gpu.state is not State.OK]
    if not named:
        return [f"all {count(len(gpus), 'GPU')} within all limits"]
    reasons = [f"{gpu.name}: {gpu.reason}" for gpu in named[:_MAX_NAMED]]
    if len(named) > _MAX_NAMED:
        reasons.append(f"and {len(named) - _MAX_NAMED} more of its {count(len(gpus), 'GPU')}")
    return reasons


def badness(gpu: GpuVerdict) -> tuple[int, bool, float, int]:
    """Sort key: the worst state first; of equals the watched GPU, then the slowest against its reference."""
    deviation = gpu.deviation(Metric.SAMPLES_PER_SECOND) or 0.0
    return _WORST_FIRST.index(gpu.state), not gpu.is_watched, deviation, gpu.index
