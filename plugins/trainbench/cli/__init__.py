"""The command `trainbench`: the same flow without Airflow. Commands only; the modules that they call do the work."""

from __future__ import annotations

import sys


def main() -> None:
    """Ctrl-C ends it quietly while it is still being imported, too, which takes half a second."""
    try:
        from trainbench.cli.app import app

        app()
    except KeyboardInterrupt:
        sys.exit(130)
