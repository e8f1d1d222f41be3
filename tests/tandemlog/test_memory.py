"""Freed memory stays with a process that asks for it."""

import subprocess
import sys

PROGRAM = """
import ctypes, resource, sys
from tandemlog.memory import keep_freed_memory
libc = ctypes.CDLL(None)
libc.malloc.restype, libc.malloc.argtypes = ctypes.c_void_p, [ctypes.c_size_t]
libc.free.argtypes = [ctypes.c_void_p]
libc.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
if sys.argv[1] == "keep":
    keep_freed_memory()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    places = [libc.malloc(16 << 20) for _ in range(3)]
    for place in places:
        libc.memset(place, 1, 16 << 20)
    for place in places:
        libc.free(place)
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, how], check=True, capture_output=True, text=True
    )
    return int(done.stdout)


def test_buffers_that_were_freed_are_there_again() -> None:
    once = 3 * (16 << 20) // 4096
    assert faults("keep") < 2 * once
    assert faults("do not") > 10 * once
