"""Fuzzing that is guided by coverage (atheris, libFuzzer), on demand: the readers of
`hostile_input`, one process for each.

    make fuzz                              a minute for each reader
    python -m chaos.guided plans 600       one reader for ten minutes

What was found to lead further is kept under build/fuzz/READER and begun from the next time. Not
part of CI: a reader that is instrumented is slow, and `python -m chaos` reads more inputs in the
same time.
"""

import subprocess
import sys
from contextlib import suppress
from pathlib import Path

SECONDS = 60
# seconds that one input may take; megabytes of the process, torch and all
LONGEST, MEMORY = 5, 4096
FOUND = Path(__file__).resolve().parent.parent / "build" / "fuzz"


def main() -> None:
    words = sys.argv[1:]
    if len(words) == 2 and words[1].isdigit():
        _one(words[0], int(words[1]))
    from chaos.hostile_input import TARGETS

    names = [target.name for target in TARGETS]
    if unknown := set(words) - set(names):
        raise SystemExit(
            f"no reader is called {', '.join(sorted(unknown))}; there are: {', '.join(names)}"
        )
    failed = []
    for name in words or names:
        print(f"{name}: {SECONDS} seconds", flush=True)
        command = [sys.executable, "-m", "chaos.guided", name, str(SECONDS)]
        failed += [name] if subprocess.run(command, cwd=FOUND.parent.parent).returncode else []
    print(
        f"{len(failed)} of {len(words or names)} readers broke a"
        f" promise{': ' if failed else ''}{', '.join(failed)}"
    )
    raise SystemExit(bool(failed))


def _one(name: str, seconds: int) -> None:
    """Ends the process: libFuzzer does."""
    try:
        import atheris
    except ImportError:
        raise SystemExit("atheris is not installed: pip install -e '.[fuzz]'") from None
    with atheris.instrument_imports(include=["fulcrum"], enable_loader_override=False):
        from chaos.hostile_input import TARGETS
    try:
        (target,) = (one for one in TARGETS if one.name == name)
    except ValueError:
        raise SystemExit(
            f"no reader is called {name}; there are: {', '.join(one.name for one in TARGETS)}"
        ) from None
    corpus, folder = FOUND / name / "corpus", FOUND / name / "folder"
    for place in (corpus, folder):
        place.mkdir(parents=True, exist_ok=True)
    for number, seed in enumerate(target.seeds):
        (corpus / f"seed{number}").write_bytes(seed)
    dictionary = FOUND / name / "words"
    pieces = ("".join(f"\\x{byte:02x}" for byte in word) for word in target.words)
    dictionary.write_text("".join(f'"{piece}"\n' for piece in pieces))

    def feed(data: bytes) -> None:
        with suppress(*target.refusals):
            target.feed(data, folder)

    limits = [
        f"-max_total_time={seconds}",
        f"-timeout={LONGEST}",
        f"-rss_limit_mb={MEMORY}",
        "-print_final_stats=1",
    ]
    atheris.Setup(
        [name, *limits, f"-dict={dictionary}", f"-artifact_prefix={FOUND / name}/", str(corpus)],
        feed,
    )
    atheris.Fuzz()


if __name__ == "__main__":
    main()
