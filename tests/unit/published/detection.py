"""The figures in the sentences of docs/detection.md, from the counts of its study; its tables have their own test."""

from __future__ import annotations

from collections.abc import Iterator

from detection_doc import Row, interval_pct, load

TABLES, _ = load()


def cases(table: str, **settings: object) -> list[Row]:
    """The cases of a table whose settings are these."""
    chosen = [row for row in TABLES[table] if settings.items() <= row.case.model_dump().items()]
    assert chosen, (table, settings)
    return chosen


def pct(row: Row, *names: str, of: str = "nights") -> float:
    count, total = row.rate(*names, of=of)
    return 100 * count / total


def reported_pct(row: Row) -> float:
    return pct(row, "bad_red", "bad_watched", of="bad")


def detection() -> Iterator[str]:
    yield from in_short()
    yield from targets()
    yield from one_node_alone()
    yield from own_history()


def in_short() -> Iterator[str]:
    (five,), (seven,), (none,) = (
        cases("targets", nodes=4, noise_pct=0.3, spread_pct=0.4, rounds=1, slow_pct=slow)
        for slow in ((5.0,), (7.0,), ())
    )
    assert reported_pct(five) == 100
    assert pct(seven, "bad_red", of="bad") > 99
    assert pct(none, "red") == 0
    fleet, slow = none.fleet, [row.fleet.slow_pct[0] for row in (five, seven)]
    yield (
        f"repeat to {fleet.noise_pct} % and whose nodes lie within {fleet.spread_pct} % of each other (standard"
        f" deviations), one round of runs is enough for four nodes: one that is {slow[0]:.0f} % slow is reported every"
        f" night, one that is {slow[1]:.0f} % slow is red in more than 99 %, and a good one was never red."
    )


def targets() -> Iterator[str]:
    slow = [row for row in cases("disturbed", disturbed_pct=2.0, slow_pct=(10.0,)) if row.fleet.nodes in (4, 8, 32)]
    worst = min(slow, key=reported_pct)
    low, _ = interval_pct(*worst.rate("bad_red", "bad_watched", of="bad"))
    yield f"at worst {reported_pct(worst):.1f} %, of which the interval begins at {low:.1f} %"
    quiet = [row for row in cases("targets", nodes=4, slow_pct=()) if row.fleet.noise_pct <= 0.3]
    assert sum(row.rate("red")[0] for row in quiet) == 0
    yield f"none in {sum(row.counts['nights'] for row in quiet):,} nights of 4 nodes at spread 0.4 %"
    four, large = (
        sorted(pct(row, "red") for row in cases("disturbed", disturbed_pct=2.0, slow_pct=(), nodes=nodes, rounds=1))
        for nodes in (4, 32)
    )
    (both,) = {f"{share:.0f}" for share in large}
    yield f"one round of 4 nodes: {four[0]:.1f} to {four[-1]:.1f} %, of 32 nodes {both} %"
    thrice = cases("disturbed", disturbed_pct=2.0, slow_pct=(), rounds=3)
    assert sum(row.rate("red")[0] for row in thrice) == 0


def one_node_alone() -> Iterator[str]:
    noisy, quiet = (cases("targets", nodes=4, noise_pct=noise, rounds=1, slow_pct=())[0] for noise in (0.3, 0.1))
    assert (noisy.rate("named")[0], quiet.rate("named")[0]) == (1, 0)
    yield f"counted once in {noisy.counts['nights']:,} nights of four nodes at noise 0.3 %, none at 0.1 %"


def own_history() -> Iterator[str]:
    shares = [pct(row, "breach") for row in cases("history", noise_pct=0.3, drop_pct=2.0)]
    yield f"at noise 0.3 %: {min(shares):.0f} to {max(shares):.0f} % in the first night"
    assert min(pct(row, "breach") for row in cases("history", noise_pct=0.1, drop_pct=2.0)) == 100
    (blamed,) = cases("history", noise_pct=1.0, drop_pct=0.0, points=5)
    yield f"they blame by chance in {pct(blamed, 'breach'):.0f} of 100 nights"
