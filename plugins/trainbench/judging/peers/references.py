"""References: the values of a fleet -> the value that one node is compared with, and its variance."""

from __future__ import annotations

import statistics
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence

from trainbench.core.grouping import grouped
from trainbench.core.verdicts import ReferenceMode
from trainbench.judging.node_runs import Key
from trainbench.judging.noise import median_variance

MIN_NODES = 3  # nodes, or GPUs of fewer nodes; with two, either may be the odd one
OWN_REFERENCE = (ReferenceMode.HISTORY, ReferenceMode.FIXED)  # throughput only; they need no peers


class References:
    """The reference of each node, or GPU, from all values of one metric.

    **Nodes.** Of three nodes or more the others count, each with the median of its own GPUs, so that every node has one
    vote: what slows all eight GPUs of a node (heat, power, host) is not half of its own reference, and a bad node of
    eight GPUs does not outvote good ones of fewer.

    **GPUs.** With one or two nodes there are not two other nodes: a GPU is compared with all other GPUs, those of its
    own node among them, three GPUs in all or more. One slow GPU is detected there as well; where all GPUs of one of two
    nodes are slow, half of the fleet is, and both halves breach, each with its side.

    **As before.** Where the nodes' own histories show that the majority fell (see `fleet_halves`), those that did not
    fall are the only reference, however few: their own history confirms them.
    """

    def __init__(
        self,
        values: Mapping[Key, float],
        no_example: Collection[Key],
        mode: ReferenceMode,
        as_before: Collection[str] = (),
    ) -> None:
        self.mode = mode
        self.min_examples = 1 if as_before else MIN_NODES
        self.values = values
        # One vote for each node where there are three or more; else one for each GPU.
        of_node = grouped((key.node, key) for key in values)
        self.by_node = len(of_node) >= MIN_NODES or bool(as_before)
        examples: dict[Key, tuple[float, bool]] = {}
        for node, keys in of_node.items():
            if self.by_node:
                usual = [key for key in keys if key not in no_example]
                middle = statistics.median(values[key] for key in usual or keys)
                examples[Key(node)] = middle, bool(usual) and (not as_before or node in as_before)
            else:
                examples |= {key: (values[key], key not in no_example) for key in keys}
        # Drilled and unsteady ones belong to the reference only where too few others are left.
        healthy = [key for key, (_, is_healthy) in examples.items() if is_healthy]
        self.examples = {key: examples[key][0] for key in (healthy if len(healthy) >= self.min_examples else examples)}
        self.ordered = sorted(self.examples.values())

    def of(self, key: Key) -> float | None:
        """The reference for `key`; None where there are too few others."""
        if len(self.ordered) < self.min_examples:
            return None
        if self.mode is ReferenceMode.MEAN:
            return statistics.fmean(self.ordered)
        if self.mode is ReferenceMode.MEDIAN:
            return statistics.median(self.ordered)
        # Leave-one-out: a reference that contains the node hides its deviation.
        own = self.examples.get(Key(key.node) if self.by_node else key)
        others = _without(own, self.ordered)
        return nearest_median(self.values[key], others) if others else self.values[key]


def _without(value: float | None, ordered: Sequence[float]) -> Sequence[float]:
    if value is None:
        return ordered
    i = bisect_left(ordered, value)
    return [*ordered[:i], *ordered[i + 1 :]]


def nearest_median(value: float, others: Sequence[float]) -> float:
    """The median of `others`, ascending; of several medians the nearest to `value`.

    Of an even number of values, everything between the two middle ones is a median. Their mean would accuse good nodes:
    of 10, 10 and 9 samples/s each 10 would be compared with 9.5 and read +5.3 %. With the nearest one, a node of three
    is off only if it is off from both others, and the slow minority never turns a majority of good nodes red.
    """
    return min(max(value, others[(len(others) - 1) // 2]), others[len(others) // 2])


def reference_variance(mode: ReferenceMode, runs_of_nodes: Sequence[int]) -> float:
    """Upper bound of the reference's variance in units of one run's, as if all nodes had the fewest runs of any.

    The nearest median is never further from the node than the usual median, to which the bound applies.
    """
    if mode in OWN_REFERENCE or not runs_of_nodes:
        return 0.0
    of_node = median_variance(min(runs_of_nodes))
    if mode is ReferenceMode.LEAVE_ONE_OUT_MEDIAN:
        return median_variance(max(len(runs_of_nodes) - 1, 1)) * of_node
    return median_variance(len(runs_of_nodes)) * of_node
