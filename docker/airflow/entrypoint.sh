#!/bin/sh
# The image's entry point, also for the Helm chart's probes, which call /entrypoint.
# Airflow's built-in login reads its passwords from a file that it also writes, so a mounted Secret will not do: the
# password comes as a variable and the file is made here, in /tmp: the root file system is read-only.
set -eu
if [ -n "${AIRFLOW_ADMIN_PASSWORD:-}" ]; then
    umask 077
    python -c 'import json, os; print(json.dumps({"admin": os.environ["AIRFLOW_ADMIN_PASSWORD"]}))' \
        >"$AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_PASSWORDS_FILE"
    umask 022
fi
# dumb-init hands signals on and reaps what tasks leave behind.
exec dumb-init -- "$@"
