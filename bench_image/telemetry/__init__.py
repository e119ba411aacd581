"""Telemetry of GPUs and host, peak memory, hardware probes, and the environment of a run."""
