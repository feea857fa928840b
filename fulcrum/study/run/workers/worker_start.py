"""Begins a worker process: what it needs is imported with the garbage collector off, which saves a sixth of its start."""

import gc

if __name__ == "__main__":
    gc.disable()  # `serve` turns it on again, when all is there
    from fulcrum.study.run.workers.worker import serve

    serve()
