#!/usr/bin/env bash
# Runs the benchmark program once for each spec file, one after the other, as a pod would: for a GPU machine without a
# cluster. PYTHON must hold the training stack.
# usage: run_specs.sh OUTPUT_DIR SPEC.json ...     -> OUTPUT_DIR/<spec's name>/result.json and log
set -uo pipefail
out=${1:?usage: run_specs.sh OUTPUT_DIR SPEC.json ...}
shift
failed=0
for spec in "$@"; do
  name=$(basename "$spec" .json)
  mkdir -p "$out/$name"
  echo "== $name"
  "${PYTHON:-python3}" -m bench_image --spec "$spec" --output "$out/$name" >"$out/$name/log" 2>&1 || { failed=1; tail -5 "$out/$name/log"; }
done
exit "$failed"
