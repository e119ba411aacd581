"""A Kubernetes API server with scheduler and kubelet on the loopback, for tests: see README.md."""
