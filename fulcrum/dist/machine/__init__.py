"""The machine that a process runs on: its device, memory, compiler, and the facts that numbers may depend on."""
