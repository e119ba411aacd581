"""Where the tests' notices and gauges end: servers for SMTP, HTTP and StatsD on this machine that keep what arrives."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email import message_from_bytes, policy
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from aiosmtpd.controller import Controller

from tests.builders.ports import free_port

SO_RCVBUFFORCE = 33  # of Linux, for root: Python's module has no name for it


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


class StatsdSink:
    """A UDP socket that holds what it gets until it is read. Where root may, its buffer is larger than usual."""

    def __init__(self) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with suppress(OSError):
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 4_000_000)
        self._socket.bind(("127.0.0.1", 0))
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]

    def lines(self) -> list[str]:
        """Since the last call. Loopback hands a datagram over as it is sent, so nothing is waited for."""
        lines: list[str] = []
        while True:
            try:
                lines += self._socket.recv(65_536).decode().splitlines()
            except BlockingIOError:
                return lines

    def close(self) -> None:
        self._socket.close()


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
