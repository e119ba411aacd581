"""What an exception means, whichever library raised it."""

from __future__ import annotations


def is_out_of_memory(error: BaseException) -> bool:
    """Torch's own class, Python's, and the RuntimeErrors of allocators and CUDA libraries that have no class."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    phrases = ("out of memory", "can't allocate memory", "cublas_status_alloc_failed")
    return isinstance(error, RuntimeError) and any(phrase in str(error).lower() for phrase in phrases)
