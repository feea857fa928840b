"""The default teacher is told nothing of the world: no attribute, no caption, and no outline or
pattern that it has."""

import ast
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fulcrum.data.world.scene import DISTANCE, TEXTURE
from tools.assets import elsewhere, fit_teacher, outlines, patterns, pictures
from tools.assets.elsewhere import MAP, RADIUS, Elsewhere
from tools.assets.fit import silent

SHORT = replace(fit_teacher.EFFORT, steps=2, batch=4)


@pytest.fixture(scope="module")
def abroad():
    return Elsewhere()


class Secret:
    """What is known of the scenes; whoever looks is caught."""

    def __getattr__(self, name):
        raise AssertionError(f"the fit read {name} of the scenes")

    __getitem__ = __len__ = __iter__ = __getattr__


def test_the_fit_reads_neither_attributes_nor_captions(monkeypatch):
    """With the scenes and labels out of reach it learns the same weights. Captions are written from
    scenes."""
    open_weights = fit_teacher.fit_teacher(SHORT, silent)[0].state_dict()
    honest = pictures.pictures
    monkeypatch.setattr(
        pictures, "pictures", lambda *given: replace(honest(*given), scenes=Secret(), grid=Secret())
    )
    hidden = fit_teacher.fit_teacher(SHORT, silent)[0].state_dict()
    assert all(torch.equal(open_weights[name], hidden[name]) for name in open_weights)


def test_the_pictures_are_all_that_it_gets():
    """The loss is a function of the world's pixels: other pixels change it, and nothing else is
    handed over."""
    pool = pictures.unlabelled("assets", 4)
    assert type(pool) is torch.Tensor and pool.dtype == torch.uint8 and pool.shape == (8, 3, 32, 32)
    assert torch.equal(pool, pictures.pictures("assets", 4).images.flatten(0, 1))


@pytest.mark.parametrize(
    "module", [fit_teacher, elsewhere, outlines, patterns], ids=lambda module: module.__name__
)
def test_its_files_import_nothing_of_the_world(module):
    source = ast.parse(Path(module.__file__).read_text())
    imported = [
        f"{node.module}.{alias.name}" if isinstance(node, ast.ImportFrom) else alias.name
        for node in ast.walk(source)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    ]
    assert imported and not [
        name for name in imported if "world." in name and "world_teacher" not in name
    ]
    assert not [
        name
        for name in imported
        if name.endswith((".pictures", ".teacher_probe", ".QUESTIONS", ".cells"))
    ]


def test_no_outline_is_one_of_the_worlds():
    """Intersection over union with each shape: turned, scaled and stretched as far as lessons
    do."""
    across = (np.arange(outlines.GRID) + 0.5) / outlines.GRID * 2 * outlines.SPAN - outlines.SPAN
    u, v = np.meshgrid(across, across)
    shapes = []
    for measure in DISTANCE:
        for turn in np.linspace(-0.5, 0.5, 5):
            a, b = u * np.cos(turn) + v * np.sin(turn), v * np.cos(turn) - u * np.sin(turn)
            for scale in (0.8, 0.9, 1.0, 1.1):
                for stretch in (0.85, 1.0, 1.17):
                    shapes.append(
                        measure(
                            *(np.float32(c) for c in (a / scale * stretch, b / scale / stretch))
                        )
                        < 0
                    )
    shape = np.stack(shapes).reshape(len(shapes), -1).astype(np.float32)
    names, planes = outlines.outlines()
    mask = (planes < 0).reshape(len(names), -1).astype(np.float32)
    both = mask @ shape.T
    nearest = (both / (mask.sum(1)[:, None] + shape.sum(1) - both)).max(1)
    assert len(names) >= 40 and nearest.max() < 0.845, names[int(nearest.argmax())]


def test_no_pattern_is_one_of_the_worlds():
    """Correlation of the second tone's places with each texture: turned and moved."""
    names, planes = patterns.patterns()
    line = np.linspace(-1, 1, 33)
    u, v = np.meshgrid(line, line)

    def at(plane, x, y):
        column, row = (
            ((c + patterns.SPAN) / (2 * patterns.SPAN) * patterns.GRID).astype(int) for c in (x, y)
        )
        return (plane[row, column] < 0).astype(float)

    worst = 0.0
    for texture in TEXTURE:
        for turn in (-0.4, 0.0, 0.4):
            a, b = u * np.cos(turn) + v * np.sin(turn), v * np.cos(turn) - u * np.sin(turn)
            share = texture(np.float32(a), np.float32(b), np.float32(0.1)).ravel()
            moved = [
                at(p, u + x, v + y).ravel()
                for p in planes
                for x in (-0.3, 0.0, 0.3)
                for y in (-0.3, 0.0, 0.3)
            ]
            worst = max(worst, np.abs(np.corrcoef(np.stack([share, *moved]))[0, 1:]).max())
    assert len(names) >= 24 and worst < 0.75


def test_a_lesson_says_what_is_in_its_picture(abroad):
    lesson = abroad.draw(64, torch.Generator().manual_seed(3))
    covered = lesson.outline >= 0
    assert lesson.clean.shape == (64, 3, 32, 32) and lesson.clean.abs().max() <= 1
    assert lesson.mask.shape == lesson.inside.shape == (64, 64, MAP * MAP)
    assert 0.1 < covered.float().mean() < 0.5 and int(lesson.outline.max()) < len(abroad.outlines)
    assert (
        lesson.radius[covered].min() >= -1
        and lesson.radius[covered].max() <= 1
        and RADIUS[0] < 2.5
        and RADIUS[1] > 6.5
    )
    middle = (
        covered
        & (lesson.offset.norm(dim=-1) < 0.6)
        & (lesson.mask.view(64, 64, MAP, MAP)[..., 4:6, 4:6].mean((2, 3)) > 0.9)
    )
    faint = middle & (lesson.strength < 0.4)
    seen = torch.nn.functional.avg_pool2d(lesson.clean, 4).flatten(2).transpose(1, 2)[faint]
    tone = lesson.tone[faint] * 2 - 1
    assert (
        len(tone) > 10 and torch.corrcoef(torch.stack([seen.flatten(), tone.flatten()]))[0, 1] > 0.8
    )


def test_the_same_generator_gives_the_same_lesson(abroad):
    one, two, other = (abroad.draw(3, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert all(torch.equal(a, b) for a, b in zip(one, two, strict=True)) and not torch.equal(
        one.clean, other.clean
    )


def test_soft_classes_sum_to_one_and_name_the_nearest():
    share = fit_teacher.nearness(
        torch.tensor([[0.0, 1.0, 0.33]]), fit_teacher.TONES, fit_teacher.SPREAD
    )
    assert float(share.sum()) == pytest.approx(1) and fit_teacher.TONES[
        share.argmax()
    ].tolist() == pytest.approx([0, 1, 1 / 3])


def test_what_is_hidden_is_grey_and_whole_cells():
    hidden = fit_teacher.masked(torch.ones(64, 3, 32, 32), torch.Generator().manual_seed(0))
    cells = fit_teacher.patches(hidden)  # (B, N, 48)
    assert ((cells == 0).all(-1) | (cells == 1).all(-1)).all() and 0.05 < float(
        (cells == 0).float().mean()
    ) < 0.25
