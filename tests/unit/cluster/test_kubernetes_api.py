"""Requests on the wire and errors that come back, with the real client against a loopback server."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest
import yaml

from trainbench.cluster import kubernetes_api
from trainbench.cluster.kubernetes_api import (
    Cluster,
    Permission,
    Refused,
    Unreachable,
    is_configured,
    open_cluster,
)
from trainbench.settings.environment import read_settings

Answer = Callable[[str, dict[str, list[str]], Any], tuple[int, Any]]


def kubeconfig(folder: Path, server: str) -> str:
    path = folder / "kubeconfig"
    path.write_text(
        yaml.safe_dump(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "c", "cluster": {"server": server}}],
                "users": [{"name": "u", "user": {"token": "secret"}}],
                "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
                "current-context": "x",
            }
        )
    )
    return str(path)


class Api:
    """Records each request; `answer` says what comes back."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, dict[str, list[str]], Any, str | None]] = []
        self.answer: Answer = lambda call, query, body: (200, {})
        api = self

        class Handler(BaseHTTPRequestHandler):
            def _do(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                url = urlsplit(self.path)
                query = parse_qs(url.query)
                call = f"{self.command} {url.path}"
                api.requests.append((call, query, body, self.headers.get("Authorization")))
                status, document = api.answer(call, query, body)
                content = document if isinstance(document, bytes) else json.dumps(document).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

            do_GET = do_POST = do_DELETE = _do

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def api(monkeypatch: pytest.MonkeyPatch) -> Iterator[Api]:
    monkeypatch.setattr(kubernetes_api, "TIMEOUTS_S", (600.0, 600.0))  # the machine may be busy
    api = Api()
    thread = threading.Thread(target=api.server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield api
    api.server.shutdown()
    thread.join()
    api.server.server_close()


@pytest.fixture
def cluster(api: Api, tmp_path: Path) -> Cluster:
    return open_cluster(read_settings({"TRAINBENCH_NAMESPACE": "bench"}), kubeconfig(tmp_path, api.url))


def status(code: int, reason: str, message: str) -> tuple[int, dict[str, Any]]:
    return code, {"kind": "Status", "status": "Failure", "reason": reason, "message": message, "code": code}


def test_the_token_of_the_kubeconfig_is_sent(api: Api, cluster: Cluster) -> None:
    api.answer = lambda *_: (200, {"gitVersion": "v1.33.13"})
    assert cluster.version() == "v1.33.13"
    assert api.requests == [("GET /version/", {}, None, "Bearer secret")]


def test_pods_are_listed_by_all_labels_and_page_by_page(api: Api, cluster: Cluster) -> None:
    def answer(call: str, query: dict[str, list[str]], body: Any) -> tuple[int, Any]:
        if "continue" in query:
            return 200, {"items": [{"n": 2}], "metadata": {}}
        return 200, {"items": [{"n": 1}], "metadata": {"continue": "next"}}

    api.answer = answer
    assert cluster.pods({"b": "2", "a": "1"}) == ({"n": 1}, {"n": 2})
    first, second = api.requests
    assert first[:2] == ("GET /api/v1/namespaces/bench/pods", {"labelSelector": ["a=1,b=2"], "limit": ["500"]})
    assert second[1]["continue"] == ["next"]
    assert second[1]["labelSelector"] == ["a=1,b=2"]


def test_a_right_is_checked_where_it_is_needed(api: Api, cluster: Cluster) -> None:
    api.answer = lambda call, query, body: (
        201,
        {"status": {"allowed": "namespace" in body["spec"]["resourceAttributes"]}},
    )
    assert cluster.is_allowed(Permission(verb="get", resource="pods", subresource="log", purpose="x"))
    assert not cluster.is_allowed(Permission(verb="list", resource="nodes", is_cluster_wide=True, purpose="x"))
    assert [request[2]["spec"]["resourceAttributes"] for request in api.requests] == [
        {"verb": "get", "resource": "pods", "subresource": "log", "namespace": "bench"},
        {"verb": "list", "resource": "nodes"},
    ]


def test_a_log_is_read_line_by_line_whatever_its_bytes_and_where_there_is_none_it_has_no_lines(
    api: Api, cluster: Cluster
) -> None:
    """A progress bar has no end of its line, and the first part of a result follows it there."""
    bar = b"#" * 100_000
    api.answer = lambda *_: (200, bar + b"part 1\n\xffpart 2\n\nno end")
    assert [*cluster.log_lines("tb-1", "base")] == [bar.decode() + "part 1", "\\xffpart 2", "", "no end"]
    for code in (400, 404):
        api.answer = lambda *_, code=code: status(code, "No", "container not found")
        assert [*cluster.log_lines("tb-1", "base")] == []
    api.answer = lambda *_: status(403, "Forbidden", "no right")
    with pytest.raises(Refused, match="no right"):
        next(cluster.log_lines("tb-1", "base"))


def test_a_pod_that_is_gone_is_none(api: Api, cluster: Cluster) -> None:
    api.answer = lambda call, query, body: (
        200,
        {"items": [{"n": 1}] if query["fieldSelector"] == ["metadata.name=a"] else []},
    )
    assert (cluster.pod("a"), cluster.pod("b")) == ({"n": 1}, None)


def test_a_dry_run_says_so_to_the_server(api: Api, cluster: Cluster) -> None:
    api.answer = lambda call, query, body: (201, {**body, "spec": {"priority": -5}})
    assert cluster.dry_run({"kind": "Pod"})["spec"]["priority"] == -5
    assert api.requests[0][1] == {"dryRun": ["All"], "fieldValidation": ["Strict"]}


def test_a_pod_is_deleted_by_its_uid_and_may_be_gone(api: Api, cluster: Cluster) -> None:
    api.answer = lambda *_: status(404, "NotFound", 'pods "p" not found')
    cluster.delete_pod("p", "uid-1")
    assert api.requests[0][:3] == (
        "DELETE /api/v1/namespaces/bench/pods/p",
        {},
        {"preconditions": {"uid": "uid-1"}},
    )
    api.answer = lambda *_: status(409, "Conflict", "the UID in the precondition does not match")
    with pytest.raises(Refused, match="does not match"):
        cluster.delete_pod("p", "uid-1")


def test_a_refusal_quotes_the_server(api: Api, cluster: Cluster) -> None:
    api.answer = lambda *_: status(403, "Forbidden", 'nodes is forbidden: User "sa" cannot list resource "nodes"')
    with pytest.raises(Refused) as caught:
        cluster.nodes()
    assert caught.value.status == 403
    assert caught.value.message == 'nodes is forbidden: User "sa" cannot list resource "nodes"'
    assert str(caught.value).startswith("list node: nodes is forbidden")


def test_a_server_that_does_not_name_our_user_is_no_error(api: Api, cluster: Cluster) -> None:
    api.answer = lambda *_: status(404, "NotFound", "the server could not find the requested resource")
    assert cluster.identity() is None
    api.answer = lambda *_: (201, {"status": {"userInfo": {"username": "system:serviceaccount:trainbench:airflow"}}})
    assert cluster.identity() == "system:serviceaccount:trainbench:airflow"


@pytest.mark.parametrize("content", [b"<html>proxy</html>", b"[1]", b""])
def test_another_web_server_is_not_taken_for_a_cluster(api: Api, cluster: Cluster, content: bytes) -> None:
    api.answer = lambda *_: (200, content)
    with pytest.raises(Unreachable, match="does not speak Kubernetes"):
        cluster.version()


def test_a_proxys_error_page_is_quoted(api: Api, cluster: Cluster) -> None:
    api.answer = lambda *_: (502, b"<html>bad gateway</html>")
    with pytest.raises(Refused, match="bad gateway"):
        cluster.version()


def test_nobody_listens(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cluster = open_cluster(read_settings({}), kubeconfig(tmp_path, f"http://127.0.0.1:{port}"))
    with pytest.raises(Unreachable) as caught:
        cluster.version()
    assert str(caught.value) == f"no Kubernetes API at http://127.0.0.1:{port}: [Errno 111] Connection refused"


def test_an_unsigned_certificate_is_reported(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    from kubernetes.client import ApiException

    def refuse(*_: Any, **__: Any) -> None:
        raise ApiException(status=0, reason="SSLError\ncertificate verify failed")

    monkeypatch.setattr(cluster.api, "request", refuse)
    with pytest.raises(Unreachable, match="cannot be trusted: SSLError certificate verify failed"):
        cluster.version()


def test_a_kubeconfig_that_is_not_there_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(Unreachable, match="no Kubernetes cluster is configured: Invalid kube-config file"):
        open_cluster(read_settings({}), str(tmp_path / "none"))


def test_a_cluster_is_configured_by_a_file_a_connection_or_the_pod_that_runs_this(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = read_settings({"TRAINBENCH_KUBERNETES_CONNECTION": "our_cluster"})
    monkeypatch.setattr("kubernetes.config.KUBE_CONFIG_DEFAULT_LOCATION", str(tmp_path / "kubeconfig"))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert not is_configured(settings)

    monkeypatch.setenv("AIRFLOW_CONN_OUR_CLUSTER", '{"conn_type": "kubernetes"}')
    assert is_configured(settings)
    monkeypatch.delenv("AIRFLOW_CONN_OUR_CLUSTER")

    kubeconfig(tmp_path, "http://127.0.0.1:1")
    assert is_configured(settings)
    (tmp_path / "kubeconfig").unlink()

    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    assert is_configured(settings)
