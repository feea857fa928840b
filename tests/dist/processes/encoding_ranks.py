"""One rank, run as a script by test_stopped_encoding.py: `fulcrum train` whose encoding takes long.

python encoding_ranks.py MARKS held|train WORDS...

Every slow chunk leaves a file in MARKS; of the held-out pictures, or of those that are trained with
"""

import sys
import time
from pathlib import Path

import torch

from fulcrum.cli import main
from fulcrum.networks.rows import Job

if __name__ == "__main__":
    torch.set_num_threads(1)
    marks, slow, words = Path(sys.argv[1]), sys.argv[2], sys.argv[3:]
    make = Job.chunk

    def chunk(self, number):
        if (self.count > 512) == (slow == "train"):
            (marks / f"{self.kind}-{number}").touch()
            time.sleep(10.0 if number else 0.0)  # the first is finished at once
        return make(self, number)

    Job.chunk = chunk
    main(words)
