"""A stand-in for the OpenTelemetry Collector: OTLP over HTTP in, Prometheus' text format out.

It keeps the last value of each gauge for ever and names it as the Collector's Prometheus exporter does. Not simulated:
`metric_expiration`, resource attributes as labels, other kinds of instruments, compression, gRPC, batches and retries.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

Labels = tuple[tuple[str, str], ...]


class Bridge(NamedTuple):
    """`gauges`: name as it was sent -> labels -> value."""

    url: str
    gauges: Mapping[str, Mapping[Labels, float]]


@contextmanager
def bridge() -> Iterator[Bridge]:
    gauges: dict[str, dict[Labels, float]] = {}
    registry = CollectorRegistry()
    registry.register(_Gauges(gauges))

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            _keep(gauges, ExportMetricsServiceRequest.FromString(body))
            self._answer(b"", "application/x-protobuf")

        def do_GET(self) -> None:
            self._answer(generate_latest(registry), "text/plain; version=0.0.4")

        def log_message(self, *_: object) -> None:
            pass

        def _answer(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    try:
        yield Bridge(f"http://127.0.0.1:{server.server_port}", gauges)
    finally:
        server.shutdown()
        server.server_close()


class _Gauges(Collector):
    def __init__(self, gauges: Mapping[str, Mapping[Labels, float]]) -> None:
        self._gauges = gauges

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, series in list(self._gauges.items()):
            names = sorted({key for labels in series for key, _ in labels})
            family = GaugeMetricFamily(re.sub(r"[^A-Za-z0-9_:]", "_", name), name, labels=names)
            for labels, value in series.items():
                family.add_metric([dict(labels).get(key, "") for key in names], value)
            yield family


def _keep(gauges: dict[str, dict[Labels, float]], request: ExportMetricsServiceRequest) -> None:
    for resource in request.resource_metrics:
        for scope in resource.scope_metrics:
            for metric in scope.metrics:
                for point in metric.gauge.data_points:
                    labels = tuple((pair.key, pair.value.string_value) for pair in point.attributes)
                    value = point.as_double if point.HasField("as_double") else float(point.as_int)
                    gauges.setdefault(metric.name, {})[labels] = value
