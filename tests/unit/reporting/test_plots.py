from __future__ import annotations

import re
import struct
from typing import Any

from bench_image.contract.options import Strategy
from tests.builders import campaigns, make_cpu_result, make_failed, make_result, verdicts
from trainbench.core.verdicts import Why
from trainbench.reporting import plots
from trainbench.reporting.pictures import PALETTE, drawing, png, svg, tell
from trainbench.results.readings import is_measured


def size(image: bytes) -> tuple[int, int]:
    assert image.startswith(b"\x89PNG\r\n\x1a\n")
    width, height = struct.unpack(">II", image[16:24])
    return width, height


def test_what_the_data_can_fill_is_drawn() -> None:
    """Runs of one GPU have no curve, one work on each node no variance, a CPU no copy to a device."""
    assert list(plots.draw(campaigns.slow_node())) == ["node_variance"]
    drawn = plots.draw(campaigns.scaling())
    assert list(drawn) == list(plots.NAMES[1:])
    assert {size(png(figure))[0] for figure in drawn.values()} == {825}
    assert plots.draw(campaigns.all_failed()) == {}
    runs = [make_cpu_result(), make_cpu_result(strategy="ddp", gpus_per_node=2)]
    assert list(plots.draw(campaigns.make_campaign(runs))) == list(plots.NAMES[1:-1])
    each_alone = campaigns.strategy_results(("full",))
    assert list(plots.draw(campaigns.make_campaign(each_alone, campaigns.each_alone(each_alone)))) == list(
        plots.NAMES[1:]
    )


def test_the_same_campaign_gives_the_same_bytes() -> None:
    first, second = (plots.draw(campaigns.cpu_drill()) for _ in range(2))
    for name, figure in first.items():
        assert png(figure) == png(second[name])
        assert svg(figure) == svg(second[name])


def test_a_large_fleet_stays_readable_and_keeps_its_red_node() -> None:
    nodes = [campaigns.gpu_node(f"node-{i}", 1.45, peers=1.45) for i in range(1000)]
    nodes[500] = campaigns.slow_node().groups[0].nodes[2]
    group = verdicts.make_group(nodes, campaigns.healthy().groups[0].group_id)
    shown = plots._furthest(group, plots.MAX_NODES)
    assert len(shown) == plots.MAX_NODES
    assert nodes[500] in shown
    drawn = plots.draw(campaigns.make_campaign(campaigns.healthy().results, [group]))
    assert size(png(drawn["node_variance"]))[1] < 2500


def test_several_groups_share_the_rows_of_the_picture() -> None:
    """Of 5 groups of 40 nodes each shows 100 / 5 = 20, of one group all 40."""
    nodes = [campaigns.gpu_node(f"node-{i}", 1.45, peers=1.45) for i in range(40)]
    runs = [make_result("node-0", seq_length=length) for length in (128, 256, 512, 1024, 2048)]
    groups = [verdicts.make_group(nodes, run.spec.identity.group_id) for run in runs]
    for shown, rows in ((5, 20), (1, 40)):
        figure = plots._node_variance(campaigns.make_campaign(runs[:shown], groups[:shown]))
        assert [len(axes.get_yticks()) for axes in figure.axes] == [rows] * shown


def test_a_node_of_which_only_a_run_failed_has_a_figure() -> None:
    half, whole = make_result("node-1", 10.0), make_failed("node-2")
    nodes = [verdicts.make_node(node, None, why=Why.FAILED) for node in ("node-1", "node-2")]
    group = verdicts.make_group(nodes, half.spec.identity.group_id)
    (axes,) = plots.draw(campaigns.make_campaign([half, whole], [group]))["node_variance"].axes
    assert [(text.get_text(), text.xy[1]) for text in axes.texts] == [("red: failed", 0), ("red: failed: no figure", 1)]


def test_each_work_has_its_own_axes_and_each_strategy_its_own_look() -> None:
    """Full, LoRA, and full without accumulation; the copy rate depends on the hardware only."""
    drawn = plots.draw(campaigns.strategies())
    assert list(drawn) == list(plots.NAMES[1:])
    assert size(png(drawn["tokens_per_sec_vs_gpu"]))[0] == round(2 * 4.3 * 110)  # no wider: a phone shows it
    assert size(png(drawn["gbps_vs_gpu"]))[0] == 825
    assert set(plots.STYLES) == set(Strategy)
    for look in zip(*plots.STYLES.values(), strict=True):
        assert len(set(look)) > 1
    assert len({(marker, line) for marker, line, _, _ in plots.STYLES.values()}) == len(Strategy)


def test_a_curve_of_the_scaling_starts_at_its_base() -> None:
    """ddp: 8,400 / 2 over 4,600 is 91.3 %, 12,200 / 4 is 66.3 %."""
    results = campaigns.strategy_results(("full",))
    (axes,) = plots.scaling_efficiency(results).axes
    line = line_of(axes, "ddp")
    # beside the other three at each size, so that none is hidden
    assert [round(float(x)) for x in line.get_xdata()] == [1, 2, 4]
    assert [round(float(y), 1) for y in line.get_ydata()] == [100.0, 91.3, 66.3]


def test_bars_show_the_noise_and_points_stand_apart() -> None:
    """Runs of 9, 10 and 11 samples/s: sqrt((2 * 0.25e-4 + 2 * 0.1004^2) / 4) = 7.1 %, times 4.604 x sqrt(pi / 6), is
    0.237, and 1 - e^-0.237 = 21.1 % of the median to both sides. ddp and fsdp share the place of four GPUs."""
    runs = [
        *(make_result(f"node-{i}", rate, strategy="ddp", gpus_per_node=4) for i, rate in enumerate((9.0, 10.0, 11.0))),
        make_result("node-0", 10.0, strategy="fsdp", gpus_per_node=4), make_result("node-0", 3.0),
    ]  # fmt: skip
    figure = plots.curves(runs, plots.CURVES["tokens_per_sec_vs_gpu"])
    (axes,) = figure.axes
    bars = {container.get_label(): container for container in axes.containers}
    ((_, low), (_, high)) = bars["ddp"].lines[2][0].get_segments()[0]

    assert (round(float(low)), round(float(high))) == (4041, 6199)
    assert line_of(axes, "ddp").get_xdata()[0] < 4 < line_of(axes, "fsdp").get_xdata()[0]
    assert line_of(axes, "single").get_xdata()[0] == 1
    assert "bars: noise" in figure.get_suptitle()
    probe = plots.curves(campaigns.strategy_results(("full",)), plots.CURVES["gbps_vs_gpu"])
    assert probe.get_suptitle() == "Host-to-device copy (median of the runs)"


def line_of(axes: Any, strategy: str) -> Any:
    return next(container.lines[0] for container in axes.containers if container.get_label() == strategy)


def test_works_stand_two_by_two_and_more_than_fit_are_counted() -> None:
    def drawn(number: int) -> Any:
        gangs = [(gpus, 8 * i) for i in range(1, number + 1) for gpus in (2, 4)]
        runs = [make_result("n", 10.0, strategy="ddp", gpus_per_node=gpus, seq_length=each) for gpus, each in gangs]
        return plots.curves(runs, plots.CURVES["tokens_per_sec_vs_gpu"])

    figure, grid = drawn(plots.MAX_FACETS + 2), drawn(4).axes[0].get_gridspec()
    assert len(figure.axes) == plots.MAX_FACETS
    assert "2 more in metrics.csv" in figure.get_suptitle()
    assert (grid.nrows, grid.ncols) == (2, 2)


def test_a_work_of_one_size_shows_which_of_the_sizes_it_is() -> None:
    lone = make_result("node-1", 10.0, strategy="fsdp", gpus_per_node=4, seq_length=8)
    results = [*campaigns.strategy_results(("full",)), lone]
    all_axes = plots.curves(results, plots.CURVES["tokens_per_sec_vs_gpu"]).axes
    assert len(all_axes) == 2
    assert {tuple(axes.get_xticks()) for axes in all_axes} == {(1, 2, 4)}
    assert len({axes.get_xlim() for axes in all_axes}) == 1


def test_the_throughput_plot_shows_linear_scaling() -> None:
    """The best on 1 GPU does 10 tokens/s: 40 on 4 GPUs. On 2 GPUs the best per GPU is 18 / 2: 36 on 4 GPUs."""
    single, ddp, fsdp = {1: (10.0, 0.0)}, {2: (18.0, 0.0), 4: (30.0, 0.0)}, {2: (16.0, 0.0)}
    assert plots.linear({"single": single, "ddp": ddp}) == {1: 10.0, 2: 20.0, 4: 40.0}
    assert plots.linear({"ddp": ddp, "fsdp": fsdp}) == {2: 18.0, 4: 36.0}
    assert plots.linear({"fsdp": fsdp}) == {}


def test_only_a_figure_that_grows_with_the_gpus_has_a_line_of_linear_scaling() -> None:
    def labels(name: str) -> set[str]:
        figure = plots.curves(tuple(filter(is_measured, campaigns.scaling().results)), plots.CURVES[name])
        return {label for axes in figure.axes for label in axes.get_legend_handles_labels()[1]}

    assert plots.IDEAL in labels("tokens_per_sec_vs_gpu")
    assert plots.IDEAL not in labels("step_time_vs_gpu") | labels("gbps_vs_gpu")


def test_an_svg_has_the_page_s_colours_texts_under_the_pointer_and_ids_of_its_own() -> None:
    from matplotlib.figure import Figure

    def picture(rate: float) -> str:
        with drawing():
            figure = Figure()
            (line,) = figure.subplots().plot([1, 2], [rate, 2.0], "o", color=PALETTE["bad"])
            tell(line, ["<b>first</b>", "second"])
        return svg(figure)

    one, other = picture(1.0), picture(1.5)
    assert 'fill="var(--bad)"' in one
    assert "style=" not in one
    assert not set(PALETTE.values()) & set(re.findall(r"#[0-9a-f]{6}", one))
    assert re.findall(r"<title>(.*?)</title>", one) == ["&lt;b&gt;first&lt;/b&gt;", "second"]
    ids, others = (re.findall(r' id="([^"]*)"', text) for text in (one, other))
    assert len(set(ids)) == len(ids)
    assert not set(ids) & set(others)
