"""The contract: a `RunSpec` goes into a pod, a `RunResult` comes out. All that the control plane and the image share.

Units stand at the end of names (`_s`, `_pct`, `_c`, `_w`, `_j`, `_bytes`, `_gb` = 1e9 bytes). A number that is not
known is `None`, and `RunResult.missing` says why; it is never -1 and never left out. It needs neither torch nor NVML.
"""
