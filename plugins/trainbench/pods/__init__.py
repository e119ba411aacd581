"""Runs as pods: manifests, gangs, time limits, and the cause of a pod's end."""
