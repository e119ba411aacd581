"""For a plugins folder, whose files Airflow loads one by one. An installed package needs none: see its entry point."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, distribution

try:
    distribution("trainbench")  # its entry point brings the plugin; loaded twice, it would be reported as broken
except PackageNotFoundError:
    from trainbench.pages.web.plugin import TrainbenchPlugin

    __all__ = ["TrainbenchPlugin"]
