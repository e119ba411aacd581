"""The stand-in's own endpoint, by which tests prepare the cluster and look into it. No real server has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.standin.faults import FaultError, PodFault
from tests.standin.rbac import identity

if TYPE_CHECKING:
    from tests.standin.server import Server


async def handle(server: Server, request: web.Request) -> web.Response:
    """GET requests|pods, POST reset|node|dead_node|live_node|images|fault|identity; with the administrator's
    token only.
    """
    if request.headers.get("Authorization") != f"Bearer {server.token}":
        return web.json_response({"error": "the administrator's token is needed"}, status=401)
    what = request.match_info["what"]
    if request.method == "GET":
        shown = {"requests": server.requests, "pods": server.cluster.store.all("pods")}
        return web.json_response(shown[what])
    try:
        await _change(server, what, await request.json())
    except (FaultError, TypeError, LookupError) as error:
        return web.json_response({"error": f"{what}: {error!r}"}, status=400)
    return web.json_response({})


async def _change(server: Server, what: str, values: dict[str, Any]) -> None:
    cluster = server.cluster
    match what:
        case "reset":
            await cluster.reset()
            server.requests.clear()
        case "node":
            cluster.set_node(values.pop("name"), values)
        case "dead_node":
            cluster.kill_node(values["name"], values["toleration_scale"])
        case "live_node":
            cluster.revive_node(values["name"])
        case "images":
            cluster.images.clear()
            cluster.images.update(values)
        case "fault":
            _add_fault(server, values)
        case "identity":
            server.identities[values["token"]] = identity(values["user"], values["roles"])
        case _:
            raise LookupError(f"there is no '{what}'")


def _add_fault(server: Server, values: dict[str, Any]) -> None:
    fault = server.cluster.faults.add(values)
    if isinstance(fault, PodFault) and fault.moment == "now":
        pods = [p for p in server.cluster.store.all("pods") if fault.pod in p["metadata"]["name"]]
        if not pods:
            raise LookupError(f"no pod is named like '{fault.pod}'")
        for pod in pods:
            server.cluster.inflict(fault, pod)
