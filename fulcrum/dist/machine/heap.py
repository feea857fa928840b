"""Memory that was freed stays with the process, so that every step finds its buffers where the last one left them."""

import ctypes
import sys
from functools import cache

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
LARGEST_KEPT = 2**25  # bytes of one block: glibc's own upper bound; kept larger ones made the heap grow without end
MOST_KEPT = 2**30  # free bytes at the end of the heap
LARGEST_BESIDE_OTHERS = 2**23  # bytes of one block, where a large model is shared among processes
LARGE = 100_000_000  # parameters of a model whose gathered matrices are larger than that


@cache
def keep_freed_memory() -> bool:
    """Ask glibc to keep freed blocks; false where there is another allocator.

    Left alone, it gives the end of its heap back to the kernel and gets it again, page by page, at the next step. How much
    depends on the first allocations: of equal processes some took no page fault a step, some 5,000 (11 of 75 ms).
    """
    return _set(M_MMAP_THRESHOLD, LARGEST_KEPT) and _set(M_TRIM_THRESHOLD, MOST_KEPT)


def give_back_gathered(parameters: int, processes: int) -> bool:
    """Let the kernel have large blocks back as soon as they are free, where processes share a model of many parameters.

    Each gathers a block's matrices and frees them, over and over, and glibc finds no second use for most of the holes: with
    192 M parameters a process held 2.64 GB, of which 1.8 were in use, and so holds 2.17. Page faults cost some 5 % there.
    """
    return processes > 1 and parameters >= LARGE and _set(M_MMAP_THRESHOLD, LARGEST_BESIDE_OTHERS)


def _set(name: int, value: int) -> bool:
    if sys.platform != "linux":
        return False
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except AttributeError:  # musl
        return False
    return bool(mallopt(name, value))
