"""**Which pods and artefacts did benchmarks leave behind?** It touches only what carries this installation's labels, or
lies in the folder of a campaign or a cost report.

| task | finds |
|---|---|
| `leaked_pods` | pods whose DAG run is over, and ended pods past the days that they are kept |
| `expired_artefacts` | campaigns and cost reports that were last changed longer ago than artefacts are kept |

Started by hand, it deletes if `delete` is ticked. By schedule, it deletes what `TRAINBENCH_HOUSEKEEPING` says:
`release`, the default, pods that still hold or await GPUs though their DAG run is over, because the run's own task
`release` failed; `delete` ended pods and expired artefacts too; `report` nothing.
`TRAINBENCH_RETENTION_DAYS` is the number of days that artefacts are kept. Pods of runs that this Airflow does not know,
and pods that name no run, are reported and left alone. Rows of the history are never deleted.
"""

from trainbench.orchestration.housekeeping_dag import build_housekeeping

dag = build_housekeeping("housekeeping", __doc__)
