"""GPU and host telemetry, hardware probes, and the environment of a run."""
