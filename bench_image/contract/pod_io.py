"""Environment variables through which a pod receives its spec, and the file in which the program leaves its result."""

from __future__ import annotations

MAX_RESULT_BYTES = 16_000_000  # 1,000 nodes of 8 GPUs need 11 MB
RESULT_FILE = "result.json"
SPEC_ENV = "TRAINBENCH_SPEC"
OUTPUT_DIR_ENV = "TRAINBENCH_OUTPUT_DIR"
POD_ENV = "TRAINBENCH_POD"  # the pod's name: where it is set, the result leaves as lines of the log (`result_lines`)
IMAGE_ENV = "TRAINBENCH_IMAGE"  # the container image
TEMPLATE_ENV = "TRAINBENCH_TEMPLATE_DIGEST"
ALLOCATOR_ENV = "PYTORCH_ALLOC_CONF"  # torch's
PROFILES_ENV = "TRAINBENCH_LOG_PROFILES_TOML"  # the installation's own log profiles
HOST_PYTHONPATH_ENV = "TRAINBENCH_HOST_PYTHONPATH"  # that of the shell, for a command of the user's own
TRACES_ENV = "TRAINBENCH_TRACES"  # a folder, mounted by the Pod template or named by the shell: a file of each rank
RANK_ENV, ADDRESS_ENV = "NODE_RANK", "MASTER_ADDR"
MEETING_ENV = (RANK_ENV, ADDRESS_ENV, "MASTER_PORT")  # of a gang: all meet at its node rank 0
NCCL_PREFIX = "NCCL_"  # of variables that the Pod template or the shell may give
NO_TEMPLATE = "none"
