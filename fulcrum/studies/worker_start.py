"""Begins a worker process: what it needs is imported with the garbage collector off, which saves a
sixth of its start."""

import gc
import sys

if __name__ == "__main__":
    gc.disable()  # `serve` turns it on again, when all is there
    from fulcrum.studies.worker import LineToStudy

    line = LineToStudy()  # before all that takes long
    from fulcrum.studies import worker

    try:
        worker.serve(line)
    # the study was stopped and says so: a traceback of ours tells nothing
    except KeyboardInterrupt:
        sys.exit(130)
