"""The stand-in's own endpoint, by which tests prepare the cluster and look into it. No real server has it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aiohttp import web

from tests.standin.faults import FaultError
from tests.standin.rbac import identity

if TYPE_CHECKING:
    from tests.standin.server import Server


async def handle(server: Server, request: web.Request) -> web.Response:
    """GET requests|pods, POST reset|node|images|fault|identity; with the administrator's token only."""
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
        case "images":
            cluster.images.clear()
            cluster.images.update(values)
        case "fault":
            cluster.faults.add(values)
        case "identity":
            server.identities[values["token"]] = identity(values["user"], values["roles"])
        case _:
            raise LookupError(f"there is no '{what}'")
