"""Modules that are loaded at their first use, beside a fork."""

import subprocess
import sys

PROGRAM = """
import os, signal, sys, threading, types
from importlib.machinery import ModuleSpec
from tandemlog import lazy

entered, allowed = threading.Event(), threading.Event()

class Slow:
    def find_spec(self, name, path, target=None):
        return ModuleSpec(name, self) if name == "slow_module" else None
    def create_module(self, spec):
        return None
    def exec_module(self, module):
        entered.set()
        allowed.wait()
        module.value = 7

sys.meta_path.insert(0, Slow())
module = lazy.lazy("slow_module")
loading = threading.Thread(target=lambda: module.value, daemon=True)
loading.start()
entered.wait()
# runs before the hook of lazy.py: from here on the other thread can end its import
os.register_at_fork(before=allowed.set)
pid = os.fork()
if not pid:
    signal.alarm(20)
    os._exit(0 if module.value == 7 and lazy.lazy("slow_module").value == 7 else 1)
assert os.waitpid(pid, 0)[1] == 0, "the child waits for a lock that nobody holds"
loading.join()
"""


def test_a_fork_waits_for_a_module_that_another_thread_is_loading() -> None:
    for _ in range(5):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        assert done.returncode == 0, done.stderr
