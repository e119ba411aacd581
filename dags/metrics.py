"""**Each node's state, samples/s, deviation, open notices, last verdict and spend, where your other metrics are.**
Runs when nodes were judged, and every hour, so that acknowledgements and a restarted exporter do not wait for a night.
Starts no pod. This DAG exists only where Airflow's own metrics are on: `[metrics] statsd_on`, `statsd_datadog_enabled`
or `otel_on`.

No benchmark fails where the metrics server is down: only this DAG sends the gauges. Names, labels and alert rules:
docs/metrics.md. `TRAINBENCH_SCHEDULE_METRICS` takes another time than `20 * * * *`; `none` leaves it to be started
by hand, and so does the local launcher.
"""

from trainbench.orchestration.metrics_dag import build_metrics, metrics_are_on

if metrics_are_on():
    dag = build_metrics("metrics", __doc__)
