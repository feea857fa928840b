"""The judge knows no trainer: its modules import without torch, and in half a second."""

import pkgutil
import subprocess
import sys

import fulcrum.judge

MODULES = [
    f"fulcrum.judge.{module.name}" for module in pkgutil.iter_modules(fulcrum.judge.__path__)
]
ROOMS = ("cli", "advice", "studies", "levers", "training", "networks", "data")
CODE = f"""
import importlib, resource, sys
for name in {MODULES}:
    importlib.import_module(name)
used = resource.getrusage(resource.RUSAGE_SELF)
rooms = {{name.split(".")[1] for name in sys.modules if name.startswith("fulcrum.")}}
print(used.ru_utime + used.ru_stime, "torch" in sys.modules, *sorted(rooms & set({ROOMS})))
"""


def test_every_module_of_the_judge_imports_without_torch_in_half_a_second():
    seconds = []
    for _ in range(3):
        answer = subprocess.run(
            [sys.executable, "-c", CODE], capture_output=True, text=True, check=True
        )
        used, torch, *rooms = answer.stdout.split()
        assert len(MODULES) > 15 and torch == "False" and not rooms, rooms
        seconds.append(float(used))
    assert min(seconds) < 0.5, seconds
