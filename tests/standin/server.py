"""The HTTP side: which request means what, who may make it, and what comes back."""

from __future__ import annotations

import asyncio
import json
import re
from datetime import UTC, datetime
from typing import Any

from aiohttp import web

from tests.standin import admin, defaults, streams
from tests.standin.admission import check_quotas
from tests.standin.cluster import Cluster
from tests.standin.faults import ReplyFault
from tests.standin.patches import patched
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

    async def _serve(self, request: web.Request) -> web.StreamResponse:
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

    async def _with_faults(self, request: web.Request) -> web.StreamResponse:
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

    async def _answer(self, request: web.Request) -> web.StreamResponse:
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

    async def _dispatch(self, call: Call, who: Identity, request: web.Request) -> web.StreamResponse:
        if call.resource == "selfsubjectaccessreviews" and call.verb == "create":
            return web.json_response(_review(who, await _body(request)), status=201)
        if call.resource == "selfsubjectreviews" and call.verb == "create":
            return web.json_response(
                await _body(request) | {"status": {"userInfo": {"username": who.user}}}, status=201
            )
        if call.resource not in KINDS:
            raise failure(404, "the server could not find the requested resource")
        if call.subresource:
            return await self._subresource(call, request)
        match call.verb:
            case "list":
                return self._list(call, request)
            case "watch":
                return await streams.watch(self.cluster.store, call, request, _selector(call, request))
            case "get":
                return web.json_response(self.cluster.store.get(call.resource, call.namespace, call.name))
            case "create":
                return web.json_response(self._create(call, await _body(request), request), status=201)
            case "patch":
                return web.json_response(self._patch(call, await _patch_body(request)))
            case "delete" if call.name:
                return self._delete(call, request, await _body(request))
        raise ApiError(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")

    async def _subresource(self, call: Call, request: web.Request) -> web.StreamResponse:
        pod = self.cluster.store.get(call.resource, call.namespace, call.name)
        if (call.resource, call.subresource) == ("pods", "log"):
            return await streams.log(self.cluster.kubelets, pod, request)
        if (call.resource, call.subresource, call.verb) == ("pods", "eviction", "create"):
            options = (await _body(request)).get("deleteOptions") or {}
            self.cluster.kubelets.evict_by_api(pod, options.get("gracePeriodSeconds"))
            success = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}
            return web.json_response(success, status=201)
        raise failure(404, "the server could not find the requested resource")

    def _list(self, call: Call, request: web.Request) -> web.Response:
        match = _selector(call, request)
        items = [item for item in self.cluster.store.all(call.resource, call.namespace or None) if match(item)]
        kind, version = KINDS[call.resource], str(self.cluster.store.version)
        metadata = {"resourceVersion": version}
        body = {"kind": f"{kind.name}List", "apiVersion": kind.group_version, "metadata": metadata, "items": items}
        return web.json_response(body)

    def _create(self, call: Call, item: Object, request: web.Request) -> Object:
        dry_run = request.query.get("dryRun") == "All"
        if call.resource == "pods":
            return self.cluster.create_pod(item, call.namespace, dry_run)
        if call.resource == "nodes":
            raise failure(501, "the stand-in makes nodes through its own endpoint")
        item |= {"metadata": item.get("metadata", {}), "kind": KINDS[call.resource].name}
        if call.namespace:
            self.cluster.namespace_labels(call.namespace)
        defaults.name_object(item["metadata"], call.namespace)
        check_names(KINDS[call.resource].name, item["metadata"])
        if call.namespace:
            check_quotas(call.resource, item, self.cluster.store)
        if dry_run:
            return item
        created = self.cluster.store.create(call.resource, item)
        self.cluster.kubelets.refresh_hosts()
        return created

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
    if verb == "get":
        return "watch" if request.query.get("watch", "").lower() in ("true", "1") else "list"
    return verb


def _needed(call: Call) -> list[Call]:
    """Reviews of one's own rights are for everybody."""
    if call.resource in ("selfsubjectaccessreviews", "selfsubjectreviews"):
        return []
    if call.resource == "namespaces" and call.name:
        return [call._replace(namespace=call.name)]  # a Role within it may allow to read it
    return [call]


def _selector(call: Call, request: web.Request) -> Match:
    by_label = label_selector(request.query.get("labelSelector", ""))
    by_field = field_selector(request.query.get("fieldSelector", ""), call.resource)
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
