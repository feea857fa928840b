"""The probes' table reaches the page of a study that was run beside it."""

import json

from fulcrum.studies.result import probes


def test_the_table_is_found_beside_the_cells(tmp_path):
    assert probes(tmp_path) is None
    (tmp_path / "cache").mkdir()
    table = {
        "n": 512,
        "pictures": "the embedded world",
        "extractors": [],
        "probes": {"negated": "colours turned over"},
        "fair": [],
        "cells": [],
    }
    (tmp_path / "cache" / "probes.json").write_text(json.dumps(table))
    assert probes(tmp_path).probes == {"negated": "colours turned over"}
