"""The cluster, or this machine: readiness checks, running pods, housekeeping, and every Kubernetes request."""
