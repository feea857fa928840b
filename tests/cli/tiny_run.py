"""What tests of commands share: the settings of a tiny run, and a call whose last line of JSON
comes back."""

import json

import pytest

from fulcrum.cli import main

TINY = [
    word
    for setting in (
        "model.width=32",
        "model.depth=4",
        "model.heads=2",
        "budget.batch=8",
        "data.source.count=64",
        "sample.steps=2",
    )
    for word in ("--set", setting)
]


def fulcrum(capsys, *words):
    with pytest.raises(SystemExit) as end:
        main([*(str(word) for word in words), "--json"])
    out = capsys.readouterr().out.strip().splitlines()
    return end.value.code, json.loads(out[-1]) if out else None
