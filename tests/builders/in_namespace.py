"""`python -m bench_image` as if on the machine whose network namespace the variable NETNS names."""

from __future__ import annotations

import os
import runpy

from bench_image.parallel import rank_watch
from tests.builders import slow_link

if __name__ == "__main__":
    slow_link.enter(os.environ["NETNS"])
    rank_watch.HANG_SHARE = rank_watch.SILENT_SHARE = float(os.environ["HANG_SHARE"])
    runpy.run_module("bench_image", run_name="__main__", alter_sys=True)
