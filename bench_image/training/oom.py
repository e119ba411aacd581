"""Recognises out-of-memory errors, whichever library raised them."""

from __future__ import annotations


def is_out_of_memory(error: BaseException) -> bool:
    """Whether the error is torch's OutOfMemoryError, a MemoryError, or a RuntimeError with an allocator's message."""
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return True
    phrases = ("out of memory", "can't allocate memory", "cublas_status_alloc_failed")
    return isinstance(error, RuntimeError) and any(phrase in str(error).lower() for phrase in phrases)
