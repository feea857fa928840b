"""Commands made ready for an attack, each once: the folder that it begins from, and where it ends
undisturbed."""

import shutil
from pathlib import Path
from typing import NamedTuple

from chaos.subjects import Subject
from chaos.trial import SLOWER, SOON, Host


class Target(NamedTuple):
    subject: Subject
    template: Path
    outcome: str  # of the undisturbed command
    calls: int
    seconds: float
    run: str  # folder of the run that it has made, if any

    def copied(self, folder: Path) -> Path:
        """A fresh folder to attack, as the template was before the command."""
        shutil.copytree(self.template, folder, symlinks=True)
        return folder


class Prepared:
    """Targets by the name of their subject, under one folder."""

    def __init__(self, host: Host, folder: Path) -> None:
        self.host, self.folder = host, folder
        self._targets: dict[str, Target] = {}

    def of(self, subject: Subject) -> Target:
        if subject.name not in self._targets:
            self._targets[subject.name] = self._made(
                subject, self.folder / f"target{len(self._targets)}"
            )
        return self._targets[subject.name]

    def ready(self) -> None:
        """From now on a command that takes much longer than the slowest of these in peace hangs."""
        self.host.limit = max(
            SOON, SLOWER * max(target.seconds for target in self._targets.values())
        )

    def _made(self, subject: Subject, folder: Path) -> Target:
        template, peace = folder / "template", folder / "peace"
        template.mkdir(parents=True)
        subject.prepare(self.host, template)
        shutil.copytree(template, peace, symlinks=True)
        end = self.host.run(subject.words_in(peace), peace)
        if end.exit != 0 or end.calls is None:
            raise SystemExit(f"{subject.name} failed in peace:\n{end.text}")
        print(
            f"{subject.name}: {end.seconds:.1f} s in peace, {end.calls} calls that write",
            flush=True,
        )
        run = next(
            (str(path.parent.relative_to(peace)) for path in peace.glob("runs/*/about.json")), ""
        )
        return Target(subject, template, subject.outcome(peace, end), end.calls, end.seconds, run)
