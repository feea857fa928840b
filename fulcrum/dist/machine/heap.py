"""Memory that was freed stays with the process, so that every step finds its buffers where the last one left them."""

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGEST_KEPT = 2**25  # bytes of one block: glibc's own upper bound; kept larger ones made the heap grow without end
MOST_KEPT = 2**30  # free bytes at the end of the heap


@cache
def keep_freed_memory() -> bool:
    """Ask glibc to keep freed blocks; false where there is another allocator.

    Left alone, it gives the end of its heap back to the kernel and gets it again, page by page, at the next step. How much
    depends on the first allocations: of equal processes some took no page fault a step, some 5,000 (11 of 75 ms).
    """
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl
        return False
    return bool(mallopt(M_MMAP_THRESHOLD, LARGEST_KEPT) and mallopt(M_TRIM_THRESHOLD, MOST_KEPT))
