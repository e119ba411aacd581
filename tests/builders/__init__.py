"""Builders of the tests. Specs and results are imported from here, all else from its module:

verdicts, campaigns, nights, paid_runs, pipelines       judged nights and months, made up
databases, postgres, ports                             empty databases, and a port for a server
image_processes, distributed_runs, equal_work_program  the benchmark program as real processes
"""

from tests.builders.results import (
    LIBRARIES,
    NO_THROTTLING,
    STARTED_AT,
    STEPS_PER_WINDOW,
    error_of,
    make_cpu_result,
    make_failed,
    make_independent,
    make_links,
    make_result,
    on_gpus,
    spoilt,
)
from tests.builders.specs import PARTS, SPEC_FIELDS, fields_of, make_spec, spec_from

__all__ = [
    "LIBRARIES",
    "NO_THROTTLING",
    "PARTS",
    "SPEC_FIELDS",
    "STARTED_AT",
    "STEPS_PER_WINDOW",
    "error_of",
    "fields_of",
    "make_cpu_result",
    "make_failed",
    "make_independent",
    "make_links",
    "make_result",
    "make_spec",
    "on_gpus",
    "spec_from",
    "spoilt",
]
