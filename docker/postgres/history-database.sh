#!/bin/sh
# Runs once, when the volume is empty: a database for trainbench's history beside Airflow's own.
set -eu
createdb --username "$POSTGRES_USER" --owner "$POSTGRES_USER" trainbench
