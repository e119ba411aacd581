"""The kind of GPU of each node of a campaign, also where its run does not report it."""

from __future__ import annotations

from collections.abc import Mapping

from bench_image.contract.work import Device
from trainbench.planning.skipped import Skipped
from trainbench.results.campaign import Campaign
from trainbench.results.readings import gpu_name

CPU, UNKNOWN = "CPU", "GPU unknown"


def gpu_kind_by_node(campaign: Campaign) -> Mapping[str, str]:
    """Node -> its GPU's name as NVML prints it; as the cluster labels it where no run of that kind reports it; else
    CPU or "GPU unknown".
    """
    reported = {r.spec.identity.node: name for r in campaign.results if (name := gpu_name(r))}
    labels = {node.name: node.gpu_product for node in campaign.known if node.gpu_product}
    labels |= {node: skip.gpu_product for skip in campaign.skipped if skip.gpu_product for node in skip.nodes}
    spelled = {gpu_label(name): name for name in reported.values()}
    on_cpu = {r.spec.identity.node for r in campaign.results if r.spec.work.device is Device.CPU}
    nodes = dict.fromkeys([*(r.spec.identity.node for r in campaign.results), *labels, *reported])
    return {
        node: CPU
        if node in on_cpu
        else reported.get(node) or spelled.get(gpu_label(labels.get(node)), labels.get(node)) or UNKNOWN
        for node in nodes
    }


def kind_of_skipped(skip: Skipped, of_node: Mapping[str, str]) -> tuple[str, ...]:
    """The kinds that were left out, each once."""
    return tuple(dict.fromkeys(of_node.get(node, UNKNOWN) for node in skip.nodes))


def gpu_label(name: str | None) -> str:
    """A GPU's name as GPU feature discovery writes it into a label: without spaces."""
    return "-".join((name or "").split())
