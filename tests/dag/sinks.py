"""Where the tests' notices and gauges end: servers for SMTP, HTTP and StatsD on this machine that keep what arrives."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from socketserver import BaseRequestHandler, UDPServer
from typing import Any

from aiosmtpd.controller import Controller

from tests.builders.ports import free_port


@contextmanager
def smtp_sink() -> Iterator[tuple[int, list[EmailMessage]]]:
    """Its port, and the mails it got."""
    mails: list[EmailMessage] = []

    class Keep:
        async def handle_DATA(self, _server: Any, _session: Any, envelope: Any) -> str:
            mail = message_from_bytes(envelope.content, policy=policy.default)
            assert isinstance(mail, EmailMessage)
            mails.append(mail)
            return "250 kept"

    port = free_port()
    controller = Controller(Keep(), hostname="127.0.0.1", port=port)
    controller.start()
    try:
        yield port, mails
    finally:
        controller.stop()


@contextmanager
def statsd_sink() -> Iterator[tuple[int, list[bytes]]]:
    """Its UDP port, and the datagrams that it got."""
    kept: list[bytes] = []

    class Keep(BaseRequestHandler):
        def handle(self) -> None:
            kept.append(self.request[0])

    with UDPServer(("127.0.0.1", 0), Keep) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        try:
            yield server.server_address[1], kept
        finally:
            server.shutdown()


@contextmanager
def http_sink() -> Iterator[tuple[int, list[tuple[str, dict[str, Any]]]]]:
    """Its port, and (path, body) of what was posted. A path with "broken" in it is answered with 500."""
    posted: list[tuple[str, dict[str, Any]]] = []

    class Keep(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if "broken" in self.path:
                self.send_response(500)
                self.end_headers()
                return
            posted.append((self.path, json.loads(body)))
            answer = b'{"ok": true}' if "/api/" in self.path else b"ok"
            self.send_response(200)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Keep)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1], posted
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def connection(**fields: Any) -> str:
    """The value of an environment variable AIRFLOW_CONN_..."""
    return json.dumps(fields)
