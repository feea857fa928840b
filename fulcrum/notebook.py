"""What the public functions hand back: runs, pictures, measurements and studies that show
themselves in a notebook.

Every text that came from a file or a person is escaped before it becomes HTML; prompts under
pictures are pixels.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import PrivateAttr

from fulcrum.judge.card import Measured
from fulcrum.judge.schema import Effect, StudyResult
from fulcrum.spec.errors import BadInput, install_extra
from fulcrum.training.trained_run import TrainedRun

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

SHEET_COLUMNS = 4
SHOWN_PIXELS = 128  # that a picture of a sheet is enlarged to, about


class FinishedRun(TrainedRun):
    """A trained run: key, folder and result, and what can be done with it."""

    files: tuple[Path, ...] = ()  # of the user's own code that it was trained with

    @classmethod
    def of(cls, result: Mapping[str, Any], files: Iterable[Path | str]) -> FinishedRun:
        run = cls(result["key"], Path(result["run"]), dict(result))
        run.files = tuple(map(Path, files))
        return run

    def sample(self, *prompts: str | Sequence[str], seed: int = 0, **settings: Any) -> Pictures:
        """Pictures of these prompts; `settings` are those of `fulcrum.sample`: guidance, steps,
        size, device."""
        import fulcrum

        texts = tuple(text for one in prompts for text in ([one] if isinstance(one, str) else one))
        drawn = fulcrum.sample(self, texts, seed, **{"files": self.files, **settings})
        return Pictures(drawn, texts, seed)

    def measure(self, samples: int = 512, **settings: Any) -> Measurements:
        """What `fulcrum measure` measures of it; `settings` are those of `fulcrum.measure`."""
        import fulcrum

        return fulcrum.measure(
            self, samples=samples, out=self.folder.parent, **{"files": self.files, **settings}
        )

    def __repr__(self) -> str:
        return (
            f"run {self.key[:8]}: {self.result.get('phrase', '')}, seed"
            f" {self.result.get('seed', '')}, {self.result.get('images', 0):,} images in"
            f" {self.result.get('seconds', 0.0):,.0f} s, {self.folder}"
        )

    def _repr_html_(self) -> str:
        facts = {
            "run": self.result.get("phrase", ""),
            "key": self.key,
            "seed": self.result.get("seed", ""),
            "images": f"{self.result.get('images', 0):,}",
            "training": f"{self.result.get('seconds', 0.0):,.0f} s",
            "folder": self.folder,
        }
        return table([], [[name, value] for name, value in facts.items()])


@dataclass(frozen=True, eq=False)
class Pictures:
    """Pictures (B, H, W, 3) with their prompts; numpy takes it as the array it holds."""

    array: NDArray[np.uint8]
    prompts: tuple[str, ...]
    seed: int

    def __len__(self) -> int:
        return len(self.array)

    def __getitem__(self, place: int) -> NDArray[np.uint8]:
        picture: NDArray[np.uint8] = self.array[place]
        return picture

    def __iter__(self) -> Iterator[NDArray[np.uint8]]:
        return iter(self.array)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        import numpy as np

        return np.array(self.array, dtype=dtype, copy=copy)

    def __repr__(self) -> str:
        count, height, width, _ = self.array.shape
        return (
            f"{count} picture{'s' if count != 1 else ''} of {width} x {height} px, seed {self.seed}"
        )

    def _repr_png_(self) -> bytes:
        """All of them on one sheet, each over its prompt."""
        from torch import from_numpy

        from fulcrum.training.pictures import png, sheet_of

        scale = max(1, SHOWN_PIXELS // self.array.shape[1])
        pictures = [from_numpy(picture).permute(2, 0, 1) for picture in self.array]
        sheet = sheet_of(pictures, self.prompts, min(SHEET_COLUMNS, len(self)), scale)
        return png(sheet, {"prompts": "\n".join(self.prompts), "seed": self.seed})


class Measurements(dict[str, Measured]):
    """Values by name, each with its interval and its card."""

    def records(self) -> list[dict[str, Any]]:
        """A row for each metric."""
        facts = [{"value": one.value, "low": one.low, "high": one.high} for one in self.values()]
        cards = [{"better": one.card.better, "n": one.card.n} for one in self.values()]
        return [
            {"metric": name, **fact, **card}
            for name, fact, card in zip(self, facts, cards, strict=True)
        ]

    def frame(self) -> Any:
        """As a data frame of pandas."""
        return frame_of(self.records())

    def _repr_html_(self) -> str:
        rows = [
            [
                one["metric"],
                _number(one["value"]),
                f"[{_number(one['low'])}, {_number(one['high'])}]",
                one["better"],
            ]
            for one in self.records()
        ]
        return table(["metric", "value", "95 %", "better"], rows)


class Effects(tuple[Effect, ...]):
    """The effects of a study, one record for each arm, metric and what was held equal."""

    def of(
        self, metric: str | None = None, arm: str | None = None, unit: str | None = None
    ) -> Effects:
        """Those of a metric, an arm, or what was held equal."""
        asked = {"metric": metric, "arm": arm, "unit": unit}
        wanted = {name: value for name, value in asked.items() if value is not None}
        return Effects(
            one
            for one in self
            if all(getattr(one, name) == value for name, value in wanted.items())
        )

    def records(self) -> list[dict[str, Any]]:
        return [one.model_dump() for one in self]

    def frame(self) -> Any:
        """As a data frame of pandas, a column for each field."""
        return frame_of(self.records())

    def _repr_html_(self) -> str:
        rows = [
            [
                one.arm,
                one.metric,
                _number(one.mean),
                f"[{_number(one.low)}, {_number(one.high)}]",
                one.n,
                _number(one.p_adjusted),
                "exploratory" if one.exploratory else one.verdict,
            ]
            for one in self
        ]
        return table(
            ["arm", "metric", "change", "interval", "pairs", "p, corrected", "verdict"], rows
        )


class Study(StudyResult):
    """A study's result; `page` is its report, one HTML file."""

    _page: Path = PrivateAttr()

    @classmethod
    def of(cls, result: StudyResult, page: Path) -> Study:
        fields = {name: getattr(result, name) for name in StudyResult.model_fields}
        study = cls.model_construct(**fields | {"effects": Effects(result.effects)})
        study._page = page
        return study

    @property
    def page(self) -> Path:
        return self._page

    def _repr_html_(self) -> str:
        effects = Effects(self.effects).of(metric=self.plan.primary_metric, unit="images")
        cells = f"{self.progress.done} of {self.progress.total} cells done"
        return (
            f"<p><b>{_text(self.title)}</b> · {_text(self.state)},"
            f" {cells}</p>{effects._repr_html_()}<p>report:"
            f" <code>{_text(self.page.resolve())}</code></p>"
        )


def frame_of(records: list[dict[str, Any]]) -> Any:
    try:
        from pandas import DataFrame
    except ImportError:
        raise BadInput(
            "a data frame needs pandas, which is not installed",
            f"{install_extra('notebook')}, or take .records()",
        ) from None
    return DataFrame.from_records(records)


def table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """An HTML table; whatever it is given is shown as text."""
    names = "".join(f"<th>{_text(name)}</th>" for name in head)
    lines = "".join(
        "<tr>" + "".join(f"<td>{_text(value)}</td>" for value in row) + "</tr>" for row in rows
    )
    return (
        f"<table>{f'<thead><tr>{names}</tr></thead>' if head else ''}<tbody>{lines}</tbody></table>"
    )


def _text(value: object) -> str:
    return html.escape(str(value))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
