"""The search for bad nodes and links: which groups run, what it ends with, and how much it may take."""

from __future__ import annotations

from collections.abc import Callable, Collection

import pytest

from trainbench.planning.link_search import (
    MOST_ROUNDS,
    Bound,
    Culprit,
    GroupState,
    GroupTest,
    LinkSearch,
    Outcome,
    bound_of,
    groups_of,
)

Oracle = Callable[[GroupTest], Outcome]


def fleet(number: int) -> list[str]:
    return [f"n{i}" for i in range(number)]


def search(number: int, oracle: Oracle, *, has_inner_link: bool = True) -> tuple[LinkSearch, list[int]]:
    """The search over so many nodes, and the number of runs of each round."""
    made = LinkSearch(groups_of(fleet(number)), has_inner_link=has_inner_link)
    runs: list[int] = []
    while tests := made.due():
        used = [node for test in tests for node in test.nodes]
        assert len(used) == len(set(used)), "two groups of a round share a node"
        assert len(runs) < MOST_ROUNDS
        runs.append(len(tests))
        made.learn([oracle(test) for test in tests])
    return made, runs


def bad_nodes(*nodes: str) -> Oracle:
    return lambda test: told(test, is_bad=not {*nodes}.isdisjoint(test.nodes))


def bad_pair(*ends: Collection[str]) -> Oracle:
    """A group is slow that has a node of each end."""
    return lambda test: told(test, is_bad=not any({*end}.isdisjoint(test.nodes) for end in ends))


def told(test: GroupTest, *, is_bad: bool) -> Outcome:
    return Outcome(test=test, state=GroupState.SLOW if is_bad else GroupState.PASSED, evidence="made up")


def names(culprits: Collection[Culprit]) -> list[tuple[str, set[str]]]:
    return [(each.kind, {*each.groups} or {*each.nodes}) for each in culprits]


def test_nodes_of_a_label_are_a_group_and_those_without_one_share_another() -> None:
    labels = {"n0": "rack-a", "n1": "rack-a", "n2": "rack-b", "n3": "rack-b", "n4": "rack-c"}
    assert groups_of(fleet(6), labels) == {
        "rack-a": ("n0", "n1"), "rack-b": ("n2", "n3"), "alone under their label": ("n4", "n5"),
    }  # fmt: skip
    assert groups_of(fleet(5), labels)["rack-a"] == ("n0", "n1", "n4")
    assert [len(nodes) for nodes in groups_of(fleet(10)).values()] == [3, 3, 4]


def test_a_healthy_fleet_takes_three_rounds() -> None:
    """16 nodes are 4 groups of 4: with and without the inner link, then one of each together."""
    made, runs = search(16, bad_nodes())
    assert (runs, made.culprits, made.stopped) == ([4, 4, 1], [], None)
    assert search(16, bad_nodes(), has_inner_link=False)[1] == [4, 1]


def test_a_bad_node_is_halved_to_and_confirmed_beside_another_node() -> None:
    """Of its group of 4: two halves beside the healthy groups' round, two padded nodes, one confirmation."""
    made, runs = search(16, bad_nodes("n6"))
    assert names(made.culprits) == [("node", {"n6"})]
    assert runs == [4, 4, 3, 2, 1]
    first, second = (outcome.test for outcome in made.culprits[0].evidence)
    assert first.padding
    assert second.padding
    assert first.padding != second.padding


@pytest.mark.parametrize(("slow", "link"), [(True, "inner"), (False, "network"), (None, "any")])
def test_the_link_is_told_by_the_screening_that_failed(slow: bool | None, link: str) -> None:
    def oracle(test: GroupTest) -> Outcome:
        return told(test, is_bad="n6" in test.nodes and slow in (test.inner_link, None))

    assert [each.link for each in search(16, oracle)[0].culprits] == [link]


def test_a_pair_whose_ends_pass_by_themselves_is_found() -> None:
    assert names(search(16, bad_pair({"n4"}, {"n7"}))[0].culprits) == [("pair", {"n4", "n7"})]


@pytest.mark.parametrize("number", [4, 9, 16, 100])
def test_a_bad_way_between_two_groups_is_found(number: int) -> None:
    groups = groups_of(fleet(number))
    first, *_, last = groups.items()
    made, _ = search(number, bad_pair(first[1], last[1]))
    assert names(made.culprits) == [("groups", {first[0], last[0]})]


def test_a_group_whose_way_out_is_bad_is_named_as_a_whole_and_a_node_with_a_bad_one_by_itself() -> None:
    inside = groups_of(fleet(16))["group 2"]

    def leaves(nodes: Collection[str]) -> Oracle:
        return lambda test: told(test, is_bad=bool({*nodes} & {*test.nodes}) and bool({*test.nodes} - {*inside}))

    assert names(search(16, leaves(inside))[0].culprits) == [("group", {"group 2"})]
    (culprit,) = search(16, leaves(inside[:1]))[0].culprits
    assert (culprit.kind, culprit.nodes, culprit.groups) == ("node", inside[:1], ("group 2",))


def test_where_all_groups_fail_nothing_is_halved() -> None:
    made, runs = search(16, lambda test: told(test, is_bad=True))
    assert (runs, made.culprits) == ([4], [])
    assert made.stopped
    assert made.stopped.startswith("all 4 groups are slow: that is a setting or the network as a whole")


def test_a_busy_node_is_left_out_and_its_group_runs_again() -> None:
    def oracle(test: GroupTest) -> Outcome:
        if "n5" in test.nodes:
            return Outcome(test=test, state=GroupState.NOT_RUN, evidence="busy", absent={"n5": "busy"})
        return told(test, is_bad="n6" in test.nodes)

    made, runs = search(16, oracle)
    assert made.absent == {"n5": "busy"}
    assert names(made.culprits) == [("node", {"n6"})]
    assert runs[:2] == [4, 1]


def test_a_group_that_nobody_can_run_is_tried_twice_and_then_left_out() -> None:
    def oracle(test: GroupTest) -> Outcome:
        state = GroupState.NOT_RUN if "n5" in test.nodes else GroupState.PASSED
        return Outcome(test=test, state=state, evidence="no answer of the API server")

    made, runs = search(16, oracle)
    assert {*made.absent} == {"n4", "n5", "n6", "n7"}
    assert runs == [4, 1, 3, 1]


def test_a_failure_that_does_not_come_again_blames_nobody() -> None:
    failed: list[GroupTest] = []

    def oracle(test: GroupTest) -> Outcome:
        is_first = "n6" in test.nodes and not failed
        failed.extend([test] if is_first else [])
        return told(test, is_bad=is_first)

    assert [each.kind for each in search(16, oracle)[0].culprits] == ["once"]


def test_two_nodes_alone_cannot_be_told_apart() -> None:
    assert names(search(2, bad_nodes("n1"))[0].culprits) == [("open", {"n0", "n1"})]


def test_the_bound_is_what_the_worst_case_takes() -> None:
    """16 nodes in 4 groups. A pair takes at most 2 runs for its halves and 1 for each of them; a group of 4 has 2
    halves and two pairs: 2 + 2 x 4 = 10. All but one group may fail, and the four that stand for the groups, with 4
    runs more that tell group from node. Rounds of a group of 4: its halves, 1 + 1 across them, 1 to confirm.
    """
    bound = bound_of(groups_of(fleet(16)), has_inner_link=True)
    assert bound == Bound(runs=8 + 3 * 10 + 1 + 10 + 4, rounds=2 + 1 + 4 + 1, healthy_runs=9, healthy_rounds=3)


def test_a_thousand_nodes_need_no_more_rounds_than_the_dag_has() -> None:
    assert bound_of(groups_of(fleet(1000)), has_inner_link=True).rounds == MOST_ROUNDS
