"""Compile to bytecode what the program loads, and nothing else.

The image has a read-only root, so what is not compiled here is compiled anew by each process. All
of the virtual environment would be 50 MB of bytecode; what our modules import is a quarter of it.
"""

import importlib
import pkgutil

for package in ("tandemlog", "tandemlog_server"):
    for module in pkgutil.walk_packages(
        [importlib.import_module(package).__path__[0]], package + "."
    ):
        # the pipeline has an image of its own, and __main__ would run
        parts = module.name.split(".")
        if {"spark", "arrow", "testing", "__main__"}.intersection(parts):
            continue
        try:
            importlib.import_module(module.name)
        except ModuleNotFoundError as error:
            # jobs that write Parquet or plots; a node does without
            if error.name not in ("pyarrow", "matplotlib"):
                raise
