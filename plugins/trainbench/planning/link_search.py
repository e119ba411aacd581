"""Finds the bad node or link of a fleet by gangs of nodes: which groups run next, given what all groups before made.

Group testing after Hwang (1972, https://doi.org/10.1080/01621459.1972.10481257): groups that share no node run side by
side, and one that fails is halved. Nothing here knows pods, figures or Airflow: the outcome of a group comes from
outside, and the same outcomes always lead to the same next groups.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Literal

from bench_image.contract.frozen import Frozen
from trainbench.core.formats import listing
from trainbench.core.grouping import grouped

SMALLEST = 2  # nodes of a group: one alone has no link
MOST_ROUNDS = 14  # of one search; a fleet of 1,000 nodes in groups of the square root needs no more


class Step(StrEnum):
    """Why a group runs."""

    SCREEN = "screening"
    NETWORK = "screening without the inner link"
    BETWEEN = "one node of each healthy group"
    HALF = "half of a failed group"
    CROSS = "parts that pass by themselves, together"
    CONFIRM = "confirmation"


class GroupState(StrEnum):
    PASSED = "passed"
    SLOW = "slow"
    FAILED = "failed"
    NOT_RUN = "not run"  # says nothing about its links


class GroupTest(Frozen):
    """A gang to run; `padding`: of its nodes those that are known to be well and only keep the others company."""

    nodes: tuple[str, ...]
    step: Step
    inner_link: bool = True
    padding: tuple[str, ...] = ()


class Outcome(Frozen):
    """What a gang made. `absent`: node -> why it did not run; only of a group that did not run."""

    test: GroupTest
    state: GroupState
    evidence: str
    absent: Mapping[str, str] = {}

    @property
    def is_bad(self) -> bool:
        return self.state in (GroupState.SLOW, GroupState.FAILED)


class Culprit(Frozen):
    """What the search ends with. `nodes`: one, or the two ends; `groups`: named where the fault lies between groups.

    `link`: inner: it shows only with the inner link, such as NVLink; network: only without; any: with both, or there
    was nothing to tell them by.
    """

    kind: Literal["node", "pair", "group", "groups", "once", "open"]
    nodes: tuple[str, ...]
    link: Literal["inner", "network", "any"]
    groups: tuple[str, ...] = ()
    evidence: tuple[Outcome, ...] = ()


def groups_of(nodes: Sequence[str], labels: Mapping[str, str] | None = None) -> dict[str, tuple[str, ...]]:
    """Name -> nodes: those of one label together; without labels about sqrt(n) groups of about sqrt(n) nodes.

    A node that is alone under its label, or has none, shares a group with the others like it.
    """
    if not labels:
        number = max(1, min(round(math.sqrt(len(nodes))), len(nodes) // SMALLEST))
        return {
            f"group {i + 1}": tuple(nodes[len(nodes) * i // number : len(nodes) * (i + 1) // number])
            for i in range(number)
        }
    by_label = grouped((labels.get(node, ""), node) for node in nodes)
    groups = {label: tuple(own) for label, own in by_label.items() if label and len(own) >= SMALLEST}
    alone = tuple(node for label, own in by_label.items() for node in own if label not in groups)
    if len(alone) >= SMALLEST or not groups:
        return groups | ({"alone under their label": alone} if alone else {})
    smallest = min(groups, key=lambda name: len(groups[name]))
    return groups | ({smallest: groups[smallest] + alone} if alone else {})


class Bound(Frozen):
    """How much a search takes. `runs` and `rounds` in the worst case; `healthy_*`: where every group passes."""

    runs: int
    rounds: int
    healthy_runs: int
    healthy_rounds: int


def bound_of(groups: Mapping[str, Sequence[str]], *, has_inner_link: bool) -> Bound:
    """The bound for a fleet without busy nodes. In the worst case all groups but one fail in every node: where all
    fail, the search ends after the screening.
    """
    number, largest = len(groups), max(map(len, groups.values()))
    screens = 2 if has_inner_link else 1
    between = int(number > 1)
    failing = sorted(map(len, groups.values()))[1 if number > 1 else 0 :]
    return Bound(
        healthy_runs=screens * number + between,
        healthy_rounds=screens + between,
        runs=screens * number + sum(map(_runs, failing)) + between * (1 + _runs(number) + number),
        rounds=screens + max(_rounds(largest), between * (2 + _rounds(number))),
    )


def _rounds(nodes: int) -> int:
    """Rounds that narrow a failed group of so many nodes: halves, and either on with a half, or across both."""
    return 1 if nodes == 1 else 1 + max(_rounds(math.ceil(nodes / 2)), _crossing(nodes))


def _runs(nodes: int) -> int:
    halves = math.ceil(nodes / 2), nodes // 2
    return 1 if nodes == 1 else 2 + max(sum(map(_runs, halves)), _crossing(nodes))


def _crossing(nodes: int) -> int:
    """Runs, one a round, that find the pair across two halves that pass by themselves."""
    return sum(math.ceil(math.log2(half)) for half in (math.ceil(nodes / 2), nodes // 2)) + 1


class Want(Frozen):
    """A test that still needs its nodes: `unlike`: what may not pad it: these nodes, of a test between groups
    their groups."""

    nodes: tuple[str, ...]
    step: Step
    inner_link: bool
    unlike: tuple[str, ...] = ()


Asking = Generator[Sequence[Want], Sequence[Outcome], None]


@dataclass
class _Job:
    """One line of the search. It waits until all that it wants has an outcome."""

    asking: Asking
    wants: Sequence[Want]
    made: dict[int, Outcome] = field(default_factory=dict)
    tries: int = 0  # of a group that did not run, without a node to blame


@dataclass(frozen=True)
class _Fault:
    """A fault within one group, or `between` groups, whose nodes then stand for their groups."""

    inner_link: bool
    link: Literal["inner", "network", "any"]
    between: bool = False


class LinkSearch:
    """The search over the groups of a fleet. By turns `due` says what to run, and `learn` takes what it made."""

    def __init__(self, groups: Mapping[str, Sequence[str]], *, has_inner_link: bool) -> None:
        self._groups = {name: tuple(nodes) for name, nodes in groups.items()}
        self._group_of = {node: name for name, nodes in groups.items() for node in nodes}
        self._has_inner_link = has_inner_link
        self._well: dict[str, None] = {}  # in the order in which they were found well
        self._jobs: list[_Job] = []
        self._placed: list[tuple[_Job, int]] = []
        self.absent: dict[str, str] = {}
        self.culprits: list[Culprit] = []
        self.stopped: str | None = None  # why the search ended without looking for nodes
        self._start(self._screen())

    # --- the turns

    def due(self) -> tuple[GroupTest, ...]:
        """The groups of the next round, no node in two of them; empty: the search is over. Ask once a round."""
        used: set[str] = set()
        tests: list[GroupTest] = []
        self._placed = []
        wanted = [(job, i) for job in self._jobs for i in range(len(job.wants)) if i not in job.made]
        for job, index in wanted:  # first come those that need no company, whose nodes are then taken
            want = job.wants[index]
            if used.isdisjoint(want.nodes) and len(want.nodes) >= SMALLEST:
                used.update(want.nodes)
                tests.append(GroupTest(nodes=want.nodes, step=want.step, inner_link=want.inner_link))
                self._placed.append((job, index))
        for job, index in wanted:
            want = job.wants[index]
            if len(want.nodes) >= SMALLEST or not used.isdisjoint(want.nodes):
                continue
            if company := self._company(want, {*used, *want.nodes, *want.unlike}):
                nodes = (*want.nodes, company)
                used.update(nodes)
                tests.append(GroupTest(nodes=nodes, step=want.step, inner_link=want.inner_link, padding=(company,)))
                self._placed.append((job, index))
        if not tests:
            for job in self._jobs:
                left = tuple(dict.fromkeys(node for want in job.wants for node in want.nodes))
                self.culprits.append(Culprit(kind="open", nodes=left, link="any"))
            self._jobs = []
            # A way is not to blame one of whose ends is.
            ends = {
                end for each in self.culprits if each.kind in ("node", "group") for end in each.groups or each.nodes
            }
            ways = [each for each in self.culprits if each.kind in ("pair", "groups")]
            for way in ways:
                if ends & {*(way.groups or way.nodes)}:
                    self.culprits.remove(way)
        return tuple(tests)

    def learn(self, outcomes: Sequence[Outcome]) -> None:
        """Take the outcomes of `due`, in its order."""
        placed, self._placed = self._placed, []
        for (job, index), outcome in zip(placed, outcomes, strict=True):
            if outcome.state is not GroupState.NOT_RUN:
                job.made[index] = outcome
                continue
            job.tries += not outcome.absent
            gone = dict(outcome.absent)
            if job.tries > 1:
                gone = dict.fromkeys(outcome.test.nodes, outcome.evidence)
            self.absent |= gone
        self._forget(self.absent)
        for job in list(self._jobs):
            if len(job.made) == len(job.wants):
                self._jobs.remove(job)
                self._advance(job.asking, [job.made[i] for i in range(len(job.wants))])

    def _forget(self, gone: Collection[str]) -> None:
        """Take nodes that cannot run out of all that is wanted; a test without any node left says nothing."""
        for node in gone:
            self._well.pop(node, None)
        for job in self._jobs:
            left = [want.model_copy(update={"nodes": _without(want.nodes, gone)}) for want in job.wants]
            job.wants = left
            for index, want in enumerate(left):
                if not want.nodes and index not in job.made:
                    nothing = GroupTest(nodes=(), step=want.step, inner_link=want.inner_link)
                    job.made[index] = Outcome(test=nothing, state=GroupState.NOT_RUN, evidence="none of its nodes ran")

    def _company(self, want: Want, taken: Collection[str]) -> str | None:
        """A node that is well: of another group where the test is about what lies between groups, else rather of the
        same group.
        """
        own = {self._group_of[node] for node in want.nodes}
        free = [node for node in self._well if node not in taken]
        if want.step is Step.BETWEEN:
            known = own | {self._group_of[node] for node in want.unlike}
            return next((node for node in free if self._group_of[node] not in known), None)
        return next(iter(sorted(free, key=lambda node: self._group_of[node] not in own)), None)

    def _start(self, asking: Asking) -> None:
        self._advance(asking, None)

    def _advance(self, asking: Asking, made: Sequence[Outcome] | None) -> None:
        try:
            wants = next(asking) if made is None else asking.send(made)
        except StopIteration:
            return
        self._jobs.append(_Job(asking, wants))
        self._forget(self.absent)

    # --- the lines of the search

    def _screen(self) -> Asking:
        names = list(self._groups)
        modes = (True, False) if self._has_inner_link else (True,)
        by_mode: list[Sequence[Outcome]] = []
        for inner_link in modes:
            step = Step.SCREEN if inner_link else Step.NETWORK
            made = yield [Want(nodes=self._groups[name], step=step, inner_link=inner_link) for name in names]
            by_mode.append(made)
            ran = [outcome for outcome in made if outcome.state is not GroupState.NOT_RUN]
            if len(ran) > 1 and all(outcome.is_bad for outcome in ran):
                self.stopped = (
                    f"all {len(ran)} groups are {listing(sorted({o.state.value for o in ran}))}"
                    f"{'' if inner_link else ' without the inner link'}: that is a setting or the network as a whole, "
                    f"not a node, and no group was halved; the first one: {ran[0].evidence}"
                )
                return
        for node in _nodes_of_passed(by_mode):
            self._well[node] = None
        healthy = []
        for name, outcomes in zip(names, zip(*by_mode, strict=True), strict=True):
            bad = [outcome for outcome in outcomes if outcome.is_bad]
            nodes = _without(self._groups[name], self.absent)
            if not bad and nodes:
                healthy.append(nodes[0])
            elif bad and nodes:
                with_inner = bad[0].test.inner_link
                link: Literal["inner", "network", "any"] = "any"
                if len(outcomes) > 1 and len(bad) == 1:
                    link = "inner" if with_inner else "network"
                self._start(self._narrow(nodes, _Fault(with_inner, link), bad[0]))
        if len(healthy) > 1:
            [outcome] = yield [Want(nodes=tuple(healthy), step=Step.BETWEEN, inner_link=True)]
            if outcome.is_bad:
                fault = _Fault(inner_link=True, link="any", between=True)
                yield from self._narrow(_without(healthy, self.absent), fault, outcome)

    def _narrow(self, nodes: tuple[str, ...], fault: _Fault, failed: Outcome) -> Asking:
        """A fault lies within these nodes, as `failed` showed."""
        if len(nodes) == 1:
            yield from self._confirm(nodes[0], fault, failed)
            return
        middle = math.ceil(len(nodes) / 2)
        halves = nodes[:middle], nodes[middle:]
        if fault.between and len({self._group_of[node] for node in (*self._well, *nodes)}) == SMALLEST:
            yield from self._cross(*halves, fault, failed)  # there is no third group to keep one of them company
            return
        made = yield [
            Want(nodes=half, step=Step.BETWEEN if fault.between else Step.HALF, inner_link=fault.inner_link)
            for half in halves
        ]
        for half, outcome in zip(halves, made, strict=True):
            if outcome.is_bad:
                self._start(self._narrow(_without(half, self.absent), fault, outcome))
            elif outcome.state is GroupState.PASSED and not fault.between:
                self._well |= dict.fromkeys(_without(half, self.absent))
        if not any(outcome.is_bad for outcome in made):
            yield from self._cross(*halves, fault, failed)

    def _cross(self, left: tuple[str, ...], right: tuple[str, ...], fault: _Fault, failed: Outcome) -> Asking:
        """Both parts pass by themselves, and failed together: the pair of nodes whose link is bad."""
        while len(left) > 1 or len(right) > 1:
            if len(left) < len(right):
                left, right = right, left
            middle = math.ceil(len(left) / 2)
            [outcome] = yield [
                Want(nodes=(*left[:middle], *right), step=Step.CROSS, inner_link=fault.inner_link)
            ]  # fmt: skip
            left = left[:middle] if outcome.is_bad else left[middle:]
            failed = outcome if outcome.is_bad else failed
        if {*left, *right} & {*self.absent} or not left or not right:
            self.culprits.append(
                Culprit(kind="open", nodes=failed.test.nodes, link=fault.link, evidence=(failed,))
            )  # fmt: skip
            return
        ends = (left[0], right[0])
        others = tuple(map(self._other_of_group, ends)) if fault.between else ends
        [outcome] = yield [Want(nodes=others, step=Step.CONFIRM, inner_link=fault.inner_link)]
        groups = tuple(self._group_of[node] for node in ends)
        kind: Literal["pair", "groups", "once"] = "once"
        if outcome.is_bad:
            kind = "groups" if fault.between else "pair"
        elif fault.between:
            kind = "pair"  # other nodes of the two groups reach each other
        self._blame(
            Culprit(
                kind=kind,
                nodes=ends if kind != "once" else failed.test.nodes,
                link=fault.link,
                groups=groups if fault.between else (),
                evidence=(failed, outcome),
            )
        )

    def _confirm(self, node: str, fault: _Fault, failed: Outcome) -> Asking:
        """The node failed beside a node that is well: does it beside another one? Of a group that fails towards others,
        does another of its nodes, too?
        """
        want = Want(nodes=(node,), step=Step.CONFIRM, inner_link=fault.inner_link, unlike=failed.test.padding)
        step = Step.BETWEEN if fault.between else Step.CONFIRM
        evidence = [failed, *(yield [want.model_copy(update={"step": step})])]
        kind: Literal["node", "pair", "group", "groups"] = "node"
        groups: tuple[str, ...] = (self._group_of[node],) if fault.between else ()
        ends: tuple[str, ...] = (node,)
        if not evidence[-1].is_bad:
            kind, ends = "pair", (node, *failed.test.padding)
            if fault.between:
                kind, groups = "groups", tuple(self._group_of[end] for end in ends)
        elif fault.between and (other := self._other_of_group(node)) != node:
            evidence += yield [Want(nodes=(other,), step=step, inner_link=fault.inner_link)]
            kind = "group" if evidence[-1].is_bad else "node"
        self._blame(Culprit(kind=kind, nodes=ends, link=fault.link, groups=groups, evidence=tuple(evidence)))

    def _blame(self, culprit: Culprit) -> None:
        """Both ends of a link may lead to it."""
        ends = {*culprit.groups} if culprit.kind == "groups" else {*culprit.nodes}
        known = [{*each.groups} if each.kind == "groups" else {*each.nodes} for each in self.culprits]
        if ends not in known:
            self.culprits.append(culprit)

    def _other_of_group(self, node: str) -> str:
        """Another node of its group that is well; the node itself where there is none."""
        of_group = self._groups[self._group_of[node]]
        return next((other for other in of_group if other != node and other in self._well), node)


def _without(nodes: Iterable[str], gone: Collection[str]) -> tuple[str, ...]:
    return tuple(node for node in nodes if node not in gone)


def _nodes_of_passed(by_mode: Sequence[Sequence[Outcome]]) -> Iterable[str]:
    """The nodes of the groups that passed in every mode."""
    for outcomes in zip(*by_mode, strict=True):
        if all(outcome.state is GroupState.PASSED for outcome in outcomes):
            yield from outcomes[0].test.nodes
