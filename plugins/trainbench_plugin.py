"""For a plugins folder, whose files Airflow loads one by one. An installed package needs none: see its entry point."""

from __future__ import annotations

from importlib.metadata import entry_points

if not entry_points(group="airflow.plugins", name="trainbench"):  # loaded twice, it would be reported as broken
    from trainbench.pages.web.plugin import TrainbenchPlugin

    __all__ = ["TrainbenchPlugin"]
