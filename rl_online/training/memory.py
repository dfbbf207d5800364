"""Keeping freed memory while training on a CPU, the most that a piece of work held, and knowing when it ran out.

Every forward pass allocates and frees the same hundreds of large tensors. glibc hands such blocks back to the kernel,
which then zeroes fresh pages for the next pass: measured, 430,000 page faults and 40 % of the CPU time of a pass
through a 135M model.
"""

import ctypes
import platform
import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import torch

M_TRIM_THRESHOLD = -1  # from malloc.h
M_MMAP_THRESHOLD = -3
NEVER = 2**31 - 1
KEEP_BELOW = 1 << 30  # blocks above a gigabyte are rare enough to map anew
GLIBC_DEFAULT = 128 * 1024


@contextmanager
def reusing_memory() -> Iterator[None]:
    """Within the block freed memory stays in the process; after it, it goes back. Does nothing without glibc."""
    if platform.libc_ver()[0] != "glibc":
        yield
        return
    libc = ctypes.CDLL(None)
    libc.mallopt(M_MMAP_THRESHOLD, KEEP_BELOW)
    libc.mallopt(M_TRIM_THRESHOLD, NEVER)
    try:
        yield
    finally:
        libc.mallopt(M_MMAP_THRESHOLD, GLIBC_DEFAULT)
        libc.mallopt(M_TRIM_THRESHOLD, GLIBC_DEFAULT)
        libc.malloc_trim(0)


CPU_ALLOCATOR_WORDS = ("can't allocate memory", "not enough memory")  # torch has no exception of its own for it


def is_out_of_memory(error: BaseException) -> bool:
    """Whether an allocation failed: torch's own exception on a GPU, a plain RuntimeError on a CPU."""
    if isinstance(error, torch.OutOfMemoryError | MemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error) for words in CPU_ALLOCATOR_WORDS)


CLEAR_PEAK = "5"  # written to clear_refs: the peak starts again from what is held now (Linux, proc(5))


@contextmanager
def peak_memory(device: torch.device) -> Iterator[Callable[[], int | None]]:
    """Within the block, the function it gives says the most bytes held since its start: on a GPU by its tensors, on a
    CPU by this whole process; None where the system does not tell.
    """
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        yield lambda: int(torch.cuda.max_memory_allocated(device))
        return
    try:
        Path("/proc/self/clear_refs").write_text(CLEAR_PEAK)
    except OSError:
        yield lambda: None
        return
    yield _peak_of_process


def _peak_of_process() -> int | None:
    found = re.search(r"^VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else None
