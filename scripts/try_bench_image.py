"""Runs one Pod manifest of `trainbench plan --manifests` in a container here, as restricted as in the cluster.

trainbench plan --nodes here --device cpu --manifests | python scripts/try_bench_image.py --output /tmp/results

Same user, read-only root, no capabilities, the pod's own volumes; no network. With --gpus the container gets all GPUs
by CDI, which the NVIDIA container toolkit sets up (`nvidia-ctk cdi generate`).
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

RESULTS = "results"  # the volume that the pod writes result.json to


def container_arguments(pod: dict[str, Any], folders: Path) -> list[str]:
    """The arguments of `podman run` or `docker run` for the pod's first container; its volumes lie under `folders`."""
    spec = pod["spec"]
    container = spec["containers"][0]
    identity, security = spec["securityContext"], container["securityContext"]
    program, *rest = container["command"]
    return [
        "--rm",
        "--network=none",
        "--security-opt=no-new-privileges",
        f"--user={identity['runAsUser']}:{identity['runAsGroup']}",
        *(["--read-only"] if security["readOnlyRootFilesystem"] else []),
        *(f"--cap-drop={capability}" for capability in security["capabilities"]["drop"]),
        *(f"--env={variable['name']}={_value(variable, pod)}" for variable in container["env"]),
        *_mounts(pod, folders),
        f"--entrypoint={program}",
        container["image"],
        *rest,
    ]


def _value(variable: dict[str, Any], pod: dict[str, Any]) -> str:
    if "value" in variable:
        return str(variable["value"])
    section, field = variable["valueFrom"]["fieldRef"]["fieldPath"].split(".")
    return str(pod[section][field])


def _mounts(pod: dict[str, Any], folders: Path) -> list[str]:
    in_memory = {
        volume["name"]: volume["emptyDir"].get("sizeLimit", "1Gi").removesuffix("i").lower()
        for volume in pod["spec"]["volumes"]
        if volume.get("emptyDir", {}).get("medium") == "Memory"
    }
    arguments = []
    for mount in pod["spec"]["containers"][0]["volumeMounts"]:
        if mount["name"] in in_memory:
            arguments.append(f"--shm-size={in_memory[mount['name']]}")
            continue
        folder = folders / mount["name"] / mount.get("subPath", "")
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o1777)  # as a fsGroup makes it writable for the pod's user, who is none of this machine
        arguments.append(f"--volume={folder}:{mount['mountPath']}:rw")
    return arguments


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("manifests", nargs="?", type=Path, help="YAML file; without it, standard input")
    parser.add_argument("--engine", default="podman", help="podman (default) or docker")
    parser.add_argument("--image", help="run this image instead of the manifest's")
    parser.add_argument("--gpus", action="store_true", help="give the container all GPUs of this machine")
    parser.add_argument("--output", type=Path, default=Path("result.json"), help="where the result goes")
    options = parser.parse_args()
    text = options.manifests.read_text(encoding="utf-8") if options.manifests else sys.stdin.read()
    pod = next((document for document in yaml.safe_load_all(text) if document), None)
    if pod is None:
        print("try_bench_image: the input has no manifest: give it the output of `trainbench plan --manifests`")
        return 2
    if options.image:
        pod["spec"]["containers"][0]["image"] = options.image
    gpus = ["--device=nvidia.com/gpu=all"] if options.gpus else []
    with tempfile.TemporaryDirectory() as name:
        ended = subprocess.run([options.engine, "run", *gpus, *container_arguments(pod, Path(name))])
        result = Path(name) / RESULTS / "result.json"
        if not result.exists():
            print(f"try_bench_image: no result, exit status {ended.returncode}: the lines above say why")
            return ended.returncode or 1
        options.output.write_bytes(result.read_bytes())
    result = json.loads(options.output.read_text(encoding="utf-8"))
    print(f"{result['status']}: {result['performance']['samples_per_second']} samples/s, see {options.output}")
    return ended.returncode


if __name__ == "__main__":
    sys.exit(main())
