"""The security linter checkov over docker/ and over the pods that trainbench makes. Run by `make check-manifests`.

checkov gets an environment of its own in a temporary folder, because it pins packages that Airflow needs in other
versions; CHECKOV=/path/to/checkov uses one that is there already. It downloads no rules.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parents[1]
VERSION = "3.3.30"

# Rules that do not fit, each with the reason.
SKIPPED = {
    "CKV_DOCKER_2": "health check in the image: a benchmark ends by itself; compose file and chart probe Airflow",
    "CKV_DOCKER_7": "pinned base: it is, by the default of an ARG, which checkov does not read",
    "CKV_K8S_8": "liveness probe: a benchmark has deadlines instead, and a probe would disturb what is measured",
    "CKV_K8S_9": "readiness probe: a benchmark serves nothing",
    "CKV_K8S_10": "CPU request: the namespace's LimitRange sets it",
    "CKV_K8S_11": "CPU limit: throttling would be measured",
    "CKV_K8S_12": "memory request: the namespace's LimitRange sets it",
    "CKV_K8S_13": "memory limit: TRAINBENCH_MEMORY_GIB sets it where a site wants one",
    "CKV_K8S_15": "pull policy Always: tags are not moved, and a fleet would ask the registry every night",
    "CKV_K8S_43": "image by digest: TRAINBENCH_IMAGE may be one; the example stays a tag that people can read",
}


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        checkov = os.environ.get("CHECKOV") or _installed(Path(name) / "environment")
        # Beside the manifests: checkov then sees which network policy is the pod's.
        scanned = Path(name) / "docker"
        shutil.copytree(ROOT / "docker", scanned, ignore=shutil.ignore_patterns(".env"))
        (scanned / "pods.yaml").write_text(yaml.safe_dump_all(_pods()), encoding="utf-8")
        findings = _scan(checkov, scanned)
    failed = [finding for finding in findings if finding["check_result"]["result"] == "FAILED"]
    for finding in failed:
        where = f"{finding['resource']} in {finding['file_path']}:{finding['file_line_range'][0]}"
        print(f"{finding['check_id']} {finding['check_name']}: {where}")
    print(f"{len(findings) - len(failed)} passed, {len(failed)} failed; {len(SKIPPED)} rules left out with a reason")
    return 1 if failed or not findings else 0


def _pods() -> list[dict[str, Any]]:
    """One pod, by the Helm values' settings."""
    from tests.builders import make_spec
    from trainbench.pods.manifests import manifest
    from trainbench.settings.environment import read_settings

    values = yaml.safe_load((ROOT / "docker" / "helm" / "values.yaml").read_text(encoding="utf-8"))
    environ = {variable["name"]: variable["value"] for variable in values["env"]}
    return [manifest(make_spec(), read_settings(environ))]


def _installed(folder: Path) -> str:
    print(f"lint_manifests: installing checkov {VERSION} ...", flush=True)
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    pip = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([*pip, f"checkov=={VERSION}"], check=True)
    return str(folder / "bin" / "checkov")


def _scan(checkov: str, folder: Path) -> list[dict[str, Any]]:
    """Every check that was made, passed or failed."""
    what = ["--directory", str(folder), "--framework", "kubernetes", "dockerfile", "secrets"]
    flags = ["--skip-download", "--output", "json", "--soft-fail", "--skip-check", ",".join(SKIPPED)]
    ran = subprocess.run([checkov, *what, *flags], capture_output=True, text=True)
    try:
        output = json.loads(ran.stdout)
    except ValueError:
        sys.exit(f"lint_manifests: checkov gave no report, exit status {ran.returncode}: {ran.stderr.strip()[-500:]}")
    results = [report.get("results", {}) for report in (output if isinstance(output, list) else [output])]
    return [
        finding for result in results for state in ("passed", "failed") for finding in result.get(f"{state}_checks", [])
    ]


if __name__ == "__main__":
    sys.exit(main())
