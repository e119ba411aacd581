"""From which amount on memory that is in use beside a run is somebody else's work."""

from __future__ import annotations

# A process that only opened a GPU holds about 0.5 GB there, and older drivers count their own reserve as in use (about
# 0.6 GB of an H200); work that slows a run holds more.
OTHERS_MEMORY_GB = 1.0
