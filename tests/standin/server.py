"""The HTTP side: which request means what, who may make it, and what comes back."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from tests.standin import admin
from tests.standin.cluster import Cluster
from tests.standin.faults import ReplyFault
from tests.standin.rbac import ADMIN, ANONYMOUS, Call, Identity, refusal
from tests.standin.selectors import Match, field_selector, label_selector
from tests.standin.status import ApiError, failure, invalid
from tests.standin.store import KINDS
from tests.standin.validate import check_names

Object = dict[str, Any]
VERSION = {"major": "1", "minor": "33", "gitVersion": "v1.33.13", "platform": "linux/amd64"}

_PATH = re.compile(
    r"^/(?:api|apis/(?P<group>[^/]+))/v1(?:/namespaces/(?P<namespace>[^/]+)(?=/))?"
    r"/(?P<resource>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<sub>[a-z]+))?$"
)
_VERBS = {"GET": "get", "POST": "create", "PATCH": "patch", "PUT": "update", "DELETE": "delete"}


class Server:
    """`identities` maps bearer tokens to who they are."""

    def __init__(self, cluster: Cluster, token: str) -> None:
        self.cluster = cluster
        self.identities: dict[str, Identity] = {token: ADMIN}
        self.token = token
        self.requests: list[Object] = []

    def app(self) -> web.Application:
        app = web.Application(client_max_size=16 * 2**20)
        app.router.add_route("*", "/_standin/{what}", lambda request: admin.handle(self, request))
        app.router.add_route("*", "/{path:.*}", self._serve)
        return app

    async def _serve(self, request: web.Request) -> web.Response:
        call = _parse(request)
        entry = {
            "t": datetime.now(UTC).isoformat().replace("+00:00", "Z"),
            "verb": _verb(request, call),
            "uri": request.raw_path,
            "code": 0,
            "ua": request.headers.get("User-Agent", ""),
        }
        self.requests.append(entry)
        try:
            response = await self._with_faults(request)
        except ApiError as error:
            response = web.json_response(error.body(), status=error.code, headers=error.headers)
        entry["code"] = response.status
        if call is not None and call.verb == "create":
            entry["name"] = _name_in(await request.text())
        return response

    async def _with_faults(self, request: web.Request) -> web.Response:
        body = await request.text() if request.can_read_body else ""
        fault = self.cluster.faults.for_request(request.method, request.raw_path, body)
        if fault is None:
            return await self._answer(request)
        await asyncio.sleep(fault.delay_s)
        if fault.after:
            await self._answer(request)
        if fault.drop and request.transport is not None:
            request.transport.close()
            return web.Response(status=499)
        if fault.code is not None:
            raise _injected(fault)
        return await self._answer(request)

    async def _answer(self, request: web.Request) -> web.Response:
        who = self._identify(request)
        if request.path in ("/version", "/version/"):
            return web.json_response(VERSION)
        call = _parse(request)
        if call is None:
            raise failure(404, "the server could not find the requested resource")
        for needed in _needed(call):
            if not who.may(needed):
                raise refusal(who, needed)
        return await self._dispatch(call, who, request)

    def _identify(self, request: web.Request) -> Identity:
        header = request.headers.get("Authorization")
        if header is None:
            return ANONYMOUS
        scheme, _, token = header.partition(" ")
        if scheme.lower() != "bearer" or token not in self.identities:
            raise failure(401, "Unauthorized")
        return self.identities[token]

    async def _dispatch(self, call: Call, who: Identity, request: web.Request) -> web.Response:
        if call.resource == "selfsubjectaccessreviews" and call.verb == "create":
            return web.json_response(_review(who, await _body(request)), status=201)
        if call.resource == "selfsubjectreviews" and call.verb == "create":
            return web.json_response(
                await _body(request) | {"status": {"userInfo": {"username": who.user}}}, status=201
            )
        if call.resource not in KINDS:
            raise failure(404, "the server could not find the requested resource")
        if call.full_resource == "pods/log":
            return self._log(call, request)
        if call.subresource:
            raise failure(404, "the server could not find the requested resource")
        match call.verb:
            case "list":
                return self._list(call, request)
            case "get":
                return web.json_response(self.cluster.store.get(call.resource, call.namespace, call.name))
            case "create" if call.resource == "pods":
                dry_run = request.query.get("dryRun") == "All"
                made = self.cluster.create_pod(await _body(request), call.namespace, dry_run)
                return web.json_response(made, status=201)
            case "patch":
                return web.json_response(self._patch(call, await _patch_body(request)))
            case "delete" if call.name:
                return self._delete(call, request, await _body(request))
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    def _log(self, call: Call, request: web.Request) -> web.Response:
        """What the container has written so far."""
        pod, kubelets = self.cluster.store.get(call.resource, call.namespace, call.name), self.cluster.kubelets
        name = request.query.get("container") or pod["spec"]["containers"][0]["name"]
        if not kubelets.answers(pod):
            address = f"{pod['status'].get('hostIP', '127.0.0.1')}:10250"
            url = f"https://{address}/containerLogs/{call.namespace}/{call.name}/{name}?{request.query_string}"
            raise failure(500, f'Get "{url}": dial tcp {address}: connect: no route to host')
        run = kubelets.runs.get(pod["metadata"]["uid"])
        if run is None:
            return web.Response(status=204)  # not bound to a node yet: there is no kubelet to ask
        container = run.containers.get(name)
        if container is None or not container.started_file.exists():
            raise failure(400, f'container "{name}" in pod "{call.name}" is waiting to start')
        last = int(request.query.get("tailLines") or len(container.lines))
        return web.Response(body=b"".join(container.lines[max(0, len(container.lines) - last) :]))

    def _list(self, call: Call, request: web.Request) -> web.Response:
        match = _selector(request)
        items = [item for item in self.cluster.store.all(call.resource, call.namespace or None) if match(item)]
        kind, version = KINDS[call.resource], str(self.cluster.store.version)
        metadata = {"resourceVersion": version}
        body = {"kind": f"{kind.name}List", "apiVersion": kind.group_version, "metadata": metadata, "items": items}
        return web.json_response(body)

    def _patch(self, call: Call, patch: Object) -> Object:
        item = self.cluster.store.get(call.resource, call.namespace, call.name)
        if call.resource == "pods" and (patch.keys() - {"metadata", "apiVersion", "kind"}):
            causes = [("spec", "Forbidden: pod updates may not change fields other than `spec.containers[*].image`")]
            raise invalid("Pod", call.name, causes)
        merged = patched(item, patch, call.resource, KINDS[call.resource].name)
        item.update(merged)
        self.cluster.store.touch(call.resource, item)
        if call.resource == "nodes":
            self.cluster.leave_tainted(item)
            self.cluster.schedule()
        return item

    def _delete(self, call: Call, request: web.Request, options: Object) -> web.Response:
        item = self.cluster.store.get(call.resource, call.namespace, call.name)
        preconditions = options.get("preconditions") or {}
        for name, title in (("uid", "UID"), ("resourceVersion", "ResourceVersion")):
            wanted = preconditions.get(name)
            if wanted and wanted != item["metadata"][name]:
                raise failure(409, f"the {title} in the precondition ({wanted}) does not match the {title} in record")
        grace = request.query.get("gracePeriodSeconds", options.get("gracePeriodSeconds"))
        if call.resource == "pods":
            self.cluster.kubelets.delete(item, None if grace is None else float(grace))
        else:
            self.cluster.store.remove(call.resource, item)
        return web.json_response(item)


def _parse(request: web.Request) -> Call | None:
    match = _PATH.match(request.path)
    if not match:
        return None
    name, sub = match["name"] or "", match["sub"] or ""
    call = Call("", match["group"] or "", match["resource"], match["namespace"] or "", name, sub)
    return call._replace(verb=_verb(request, call))


def _verb(request: web.Request, call: Call | None) -> str:
    verb = _VERBS.get(request.method, request.method.lower())
    if call is None or call.name:
        return verb
    return "list" if verb == "get" else verb


def _needed(call: Call) -> list[Call]:
    """Reviews of one's own rights are for everybody."""
    if call.resource in ("selfsubjectaccessreviews", "selfsubjectreviews"):
        return []
    if call.resource == "namespaces" and call.name:
        return [call._replace(namespace=call.name)]  # a Role within it may allow to read it
    return [call]


def _selector(request: web.Request) -> Match:
    by_label = label_selector(request.query.get("labelSelector", ""))
    by_field = field_selector(request.query.get("fieldSelector", ""))
    return lambda item: by_label(item) and by_field(item)


async def _body(request: web.Request) -> Object:
    text = await request.text()
    try:
        body = json.loads(text) if text else {}
    except ValueError as error:
        raise failure(400, f"the object provided is unrecognized: {error}") from None
    return body if isinstance(body, dict) else {}


def _name_in(text: str) -> str:
    try:
        return str(json.loads(text)["metadata"]["name"])
    except (ValueError, LookupError, TypeError):
        return ""


async def _patch_body(request: web.Request) -> Object:
    if request.content_type == "application/json-patch+json":
        raise ApiError(415, "UnsupportedMediaType", "the stand-in takes merge patches only")
    return await _body(request)


def _review(who: Identity, review: Object) -> Object:
    asked = review["spec"].get("resourceAttributes") or {}
    names = ("verb", "group", "resource", "namespace", "name", "subresource")
    return review | {"status": {"allowed": who.may(Call(*(asked.get(name, "") for name in names)))}}


def _injected(fault: ReplyFault) -> ApiError:
    error = failure(fault.code or 500, fault.message)
    if fault.retry_after_s is not None:
        error.headers["Retry-After"] = str(fault.retry_after_s)
    return error


def patched(old: Object, patch: Object, resource: str, kind: str) -> Object:
    """The object after the patch. Raises ApiError: 409 for a `resourceVersion` that is not the latest, 422 for what is
    invalid.
    """
    metadata = old["metadata"]
    version = (patch.get("metadata") or {}).get("resourceVersion")
    if version not in (None, metadata["resourceVersion"]):
        changed = "the object has been modified; please apply your changes to the latest version and try again"
        raise failure(409, f'Operation cannot be fulfilled on {resource} "{metadata["name"]}": {changed}')
    merged = _merged(old, patch)
    if (uid := merged["metadata"]["uid"]) != metadata["uid"]:
        raise invalid(kind, metadata["name"], [("metadata.uid", f'Invalid value: "{uid}": field is immutable')])
    check_names(kind, merged["metadata"])
    return merged


def _merged(old: Object, patch: Object) -> Object:
    """RFC 7386. A strategic merge does the same with objects and with atomic lists, as a node's taints are."""
    result = dict(old)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = _merged(result.get(key) or {}, value) if isinstance(value, dict) else value
    return result
