"""python -m fulcrum: the command line, for launchers that want a module (torchrun -m fulcrum train
...)."""

from fulcrum.cli import main

if __name__ == "__main__":
    main()
