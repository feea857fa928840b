"""SIGTERM while many processes wait for what one of them encodes: all end soon with 75, and only
whole chunks are kept."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from fulcrum.spec.errors import REQUEUE

pytestmark = pytest.mark.long

sys.path.insert(0, str(Path(__file__).parent))
from ranks_of_a_run import Started, wait_for, words  # noqa: E402

SCRIPT = str(Path(__file__).with_name("encoding_ranks.py"))
# seconds, on a starved machine; what is left to encode takes 300 and, of the held-out pictures,
# none of them
SOON = 100.0


@pytest.mark.parametrize("slow", ["train", "held"])
def test_processes_that_encode_end_soon_and_keep_whole_chunks(tmp_path, slow):
    marks, out = tmp_path / "marks", tmp_path / "runs"
    marks.mkdir()
    command = [SCRIPT, str(marks), slow, *words(out, "--set", "data.source.count=4096")[2:]]
    with Started(command, command) as run:
        # one encodes, the other waits for it
        wait_for(lambda: (marks / "texts-1").exists(), seconds=200)
        begun = time.monotonic()
        for process in run.processes:
            process.send_signal(signal.SIGTERM)
        ends = run.ended(SOON)
    assert [code for code, _ in ends] == [REQUEUE, REQUEUE], ends
    assert time.monotonic() - begun < SOON and "stopped before the first step" in ends[0][1]
    (making,) = (out / "cache").glob("texts-*.making")
    journals = [
        json.loads(line)
        for path in making.glob("*.journal")
        for line in path.read_text().splitlines()
    ]
    assert [line["chunk"] for line in journals] == [0], (
        "the first chunk was finished, the second was not"
    )
    for name, region in journals[0]["arrays"].items():
        (file,) = making.glob(f"{name}.*.bin")
        rows, *rest = region["shape"]
        per_row = int(region["dtype"][2:])
        for side in rest:
            per_row *= side
        assert file.stat().st_size == (region["start"] + rows) * per_row, (
            "nothing stands behind what is finished"
        )
    assert not list(out.rglob("*.writing")) and not list(out.glob("*/result.json"))
