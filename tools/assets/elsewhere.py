"""Pictures that are not the world's: outlines and patterns in any colours over any ground, with
what covers each cell.

The default teacher learns to see from them, as the published teachers learned from other pictures
than a run's.

B pictures, O = 4 objects at most, S side, N cells, M = 10 x 10 points of a thing's own plane, A
colour anchors
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from fulcrum.networks.teacher import PATCH
from tools.assets import outlines as o
from tools.assets import patterns as p

OBJECTS = 4
RADIUS = (2.4, 7.2)  # pixels
TURN, STRETCH = 0.35, 0.16  # radians; logarithm of width against height
MAP, VIEW = 10, 1.3  # points along a side of a thing's own plane, and how far it reaches in radii


class Lesson(NamedTuple):
    """One batch: the picture, and what covers each cell (-1 in `outline` where nothing does)."""

    clean: Tensor  # (B, 3, S, S) in [-1, 1]
    outline: Tensor  # (B, N) int64
    pattern: Tensor  # (B, N) int64
    strength: Tensor  # (B, N) how far the second tone is from the first
    tone: Tensor  # (B, N, 3) the first tone as it was painted, in [0, 1]
    radius: Tensor  # (B, N) log of the radius, -1..1 over the range
    offset: Tensor  # (B, N, 2) from the cell to the thing's middle, in radii
    mask: Tensor  # (B, N, M) inside or outside, around its middle, in radii
    inside: Tensor  # (B, N, M) share of the second tone there, times strength


class Things(NamedTuple):
    """The objects of a batch, picture by picture: what they are and where they stand."""

    outline: Tensor  # (BO,) int64
    pattern: Tensor  # (BO,) int64
    radius: Tensor  # (BO,) pixels
    middle: Tensor  # (BO, 2) x, y in pixels
    there: Tensor  # (B, O) bool: not every picture has all
    affine: Tensor  # (BO, 2, 2) picture to own plane
    phase: Tensor  # (BO, 2) of the pattern
    zoom: Tensor  # (BO,)


class Elsewhere:
    """Draws lessons; all randomness comes from the generator."""

    def __init__(self, side: int = 32) -> None:
        self.side = side
        self.outlines, planes = o.outlines()
        self.patterns, spread = p.patterns()
        self.planes, self.spread = (
            torch.from_numpy(planes)[:, None],
            torch.from_numpy(spread)[:, None],
        )
        line = (torch.arange(MAP) + 0.5) / MAP * 2 * VIEW - VIEW
        self.points = torch.stack(torch.meshgrid(line, line, indexing="xy"), -1)  # (10, 10, 2) x, y

    def draw(self, rows: int, generator: torch.Generator) -> Lesson:
        """Pictures with two to four things each, and the answers for every cell."""
        things = self._things(rows, generator)
        clean, tone, strength = self._picture(things, generator)
        near, whose, offset = self._nearest(things)
        many = len(things.outline)
        mask, inside = self._cover(
            things, self.points.expand(many, MAP, MAP, 2), torch.full((many,), 2 * VIEW / MAP)
        )
        inside = inside * mask * strength[:, None, None]
        return Lesson(
            clean=clean,
            outline=torch.where(near < 1, things.outline[whose], -1),
            pattern=things.pattern[whose],
            strength=strength[whose],
            tone=tone[whose],
            radius=(2 * (things.radius / RADIUS[0]).log() / math.log(RADIUS[1] / RADIUS[0]) - 1)[
                whose
            ],
            offset=offset,
            mask=mask.flatten(1)[whose],
            inside=inside.flatten(1)[whose],
        )

    def _things(self, rows: int, generator: torch.Generator) -> Things:
        def uniform(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator)

        many = rows * OBJECTS
        outline = torch.randint(len(self.outlines), (many,), generator=generator)
        pattern = torch.randint(len(self.patterns), (many,), generator=generator)
        radius = RADIUS[0] * (RADIUS[1] / RADIUS[0]) ** uniform(many)
        # distinct squares of a 3 x 3 layout, moved about: things seldom hide each other
        place = uniform(rows, 9).argsort(1)[:, :OBJECTS]
        middle = (
            torch.stack([place % 3, place // 3], -1).float()
            + 0.5
            + 0.5 * (uniform(rows, OBJECTS, 2) - 0.5)
        )
        there = torch.arange(OBJECTS) < 2 + (uniform(rows, 1) * (OBJECTS - 1)).long()
        turn, stretch = TURN * (2 * uniform(many) - 1), STRETCH * (2 * uniform(many) - 1)
        shear = 0.2 * (uniform(many) - 0.5)
        across = torch.stack([turn.cos() * stretch.exp(), turn.sin() + shear], -1)
        down = torch.stack([-turn.sin() + shear, turn.cos() * (-stretch).exp()], -1)
        phase, zoom = 0.4 * (uniform(many, 2) - 0.5), 0.85 + 0.4 * uniform(many)
        affine = torch.stack([across, down], 1)
        return Things(
            outline,
            pattern,
            radius,
            middle.reshape(many, 2) * self.side / 3,
            there,
            affine,
            phase,
            zoom,
        )

    def _cover(self, things: Things, points: Tensor, pixel: Tensor) -> tuple[Tensor, Tensor]:
        """Cover of the outline and of the second tone at points in radii (BO, h, w, 2); a pixel is
        so many radii (BO,)."""
        own = torch.einsum("bij,bhwj->bhwi", things.affine, points)
        far = F.grid_sample(
            self.planes[things.outline], own / o.SPAN, align_corners=False, padding_mode="border"
        )[:, 0]
        zoom, pixel = things.zoom[:, None, None], pixel[:, None, None]
        deep = F.grid_sample(
            self.spread[things.pattern],
            (own * zoom[..., None] + things.phase[:, None, None]) / p.SPAN,
            align_corners=False,
            padding_mode="reflection",
        )[:, 0]
        return (0.5 - far / pixel).clamp(0, 1), (0.5 - deep / (pixel * zoom)).clamp(0, 1)

    def _picture(self, things: Things, generator: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
        """The picture (B, 3, S, S) in [-1, 1], each thing's first tone (BO, 3) and the second's
        distance from it (BO,)."""
        rows, many = len(things.there), len(things.outline)
        steps = torch.arange(self.side) + 0.5
        grid = torch.stack(torch.meshgrid(steps, steps, indexing="xy"), -1)  # (S, S, 2)
        # (BO, S, S, 2), radii
        away = (grid - things.middle[:, None, None]) / things.radius[:, None, None, None]
        cover, second = self._cover(things, away, 1 / things.radius)
        canvas = self._ground(rows, generator)
        tone, other = self._tones(canvas, many, generator)
        # (BO, 3, S, S)
        paint = tone[:, :, None, None] + second[:, None] * (other - tone)[:, :, None, None]
        light = 0.35 * (torch.rand(rows, 2, generator=generator) - 0.5) * 2
        # most pictures are lit from a side
        light = light * (torch.rand(rows, 1, generator=generator) < 0.6)
        facing = (away * light.repeat_interleave(OBJECTS, 0)[:, None, None]).sum(-1)  # (BO, S, S)
        paint = paint * (1 + 0.7 * facing)[:, None].clamp(0.5, 1.5)
        lit = (light.norm(dim=-1) > 0).repeat_interleave(OBJECTS)[:, None, None]
        shadow = 0.35 * (1.5 - away.norm(dim=-1) - facing).clamp(0, 1) * lit
        for n in range(OBJECTS):
            at = torch.arange(rows) * OBJECTS + n
            on = things.there[:, n, None, None, None].float()
            canvas = canvas * (1 - on * shadow[at][:, None])
            canvas = canvas + on * cover[at][:, None] * (paint[at] - canvas)
        return self._photograph(canvas, light, generator) * 2 - 1, tone, (other - tone).norm(dim=-1)

    def _nearest(self, things: Things) -> tuple[Tensor, Tensor, Tensor]:
        """For each cell (B, N): how far the nearest thing is (below 1: covers the cell), which, and
        the way (B, N, 2)."""
        rows = len(things.there)
        cell = (torch.arange(self.side // PATCH) + 0.5) * PATCH
        # (N, 2) x, y, row by row
        cells = torch.stack(torch.meshgrid(cell, cell, indexing="xy"), -1).reshape(-1, 2)
        # (B, O, N, 2)
        way = (things.middle.view(rows, OBJECTS, 1, 2) - cells) / things.radius.view(
            rows, OBJECTS, 1, 1
        )
        far = way.norm(dim=-1) - (0.35 * PATCH / things.radius).view(rows, OBJECTS, 1)
        near, who = far.masked_fill(~things.there[..., None], math.inf).min(1)
        offset = way.gather(1, who[:, None, :, None].expand(-1, 1, -1, 2))[:, 0]
        return near, who + torch.arange(rows)[:, None] * OBJECTS, offset

    def _tones(
        self, ground: Tensor, many: int, generator: torch.Generator
    ) -> tuple[Tensor, Tensor]:
        """Two tones for each thing (BO, 3); the second is darker, lighter, or on the way to any
        other colour."""
        behind = F.adaptive_avg_pool2d(ground, 1).flatten(1).repeat_interleave(OBJECTS, 0)
        tone, spare = self._colours(many, generator), self._colours(many, generator)
        closer = (tone - behind).norm(dim=-1, keepdim=True) < (spare - behind).norm(
            dim=-1, keepdim=True
        )
        tone = torch.where(closer, spare, tone)  # of two colours the one that stands out
        kind, share = (torch.rand(many, 1, generator=generator) for _ in range(2))
        any_other = torch.where(kind < 0.7, torch.ones(()), self._colours(many, generator))
        return tone, tone + (0.25 + 0.75 * share) * (
            torch.where(kind < 0.4, torch.zeros(()), any_other) - tone
        )

    def _colours(self, rows: int, generator: torch.Generator) -> Tensor:
        """Any colour of the cube, half of them drawn apart from grey."""
        rgb = torch.rand(rows, 3, generator=generator)
        low, high = rgb.amin(1, keepdim=True), rgb.amax(1, keepdim=True)
        vivid = (rgb - low) / (high - low).clamp_min(1e-3) * high
        return torch.where(torch.rand(rows, 1, generator=generator) < 0.5, vivid, rgb)

    def _ground(self, rows: int, generator: torch.Generator) -> Tensor:
        """Two colours mixed by a smooth random field, sharpened by chance: plain, fading, split,
        blotched."""
        one, two = (self._colours(rows, generator) for _ in range(2))
        # paler than things
        one, two = (0.5 * c + 0.5 * c.mean(1, keepdim=True) for c in (one, two))
        level = torch.rand(rows, 1, 1, 1, generator=generator)
        fields = []
        for knots in (2, 3, 6):
            rough = torch.randn(rows, 1, knots, knots, generator=generator)
            fields.append(F.interpolate(rough, self.side, mode="bicubic", align_corners=True))
        pick = torch.randint(3, (rows, 1, 1, 1), generator=generator)
        field = torch.where(pick == 0, fields[0], torch.where(pick == 1, fields[1], fields[2]))
        sharp = 0.5 * 30.0 ** torch.rand(rows, 1, 1, 1, generator=generator)
        mixed = torch.sigmoid(field * sharp + 2 * level - 1)
        mixed = torch.where(
            torch.rand(rows, 1, 1, 1, generator=generator) < 0.25, torch.zeros(()), mixed
        )
        return one[:, :, None, None] + mixed * (two - one)[:, :, None, None]

    def _photograph(self, canvas: Tensor, light: Tensor, generator: torch.Generator) -> Tensor:
        """Blur, uneven light, a cast and grain, each in some of the pictures."""
        rows = len(canvas)
        some = torch.rand(rows, 3, 1, 1, 1, generator=generator) < 0.5
        soft = F.avg_pool2d(F.pad(canvas, (1, 1, 1, 1), mode="replicate"), 3, 1)
        canvas = canvas + some[:, 0] * 0.5 * torch.rand(rows, 1, 1, 1, generator=generator) * (
            soft - canvas
        )
        across = torch.linspace(-1, 1, self.side)
        lit = 1 + light[:, :1, None] * across + light[:, 1:, None] * across[:, None]
        cast = 1 + 0.14 * (torch.rand(rows, 3, 1, 1, generator=generator) - 0.5)
        canvas = canvas * torch.where(
            some[:, 1], cast * lit[:, None].clamp(0.5, 1.5), torch.ones(())
        )
        grain = (
            0.05
            * torch.rand(rows, 1, 1, 1, generator=generator)
            * torch.randn(rows, 1, *canvas.shape[2:], generator=generator)
        )
        return (canvas + some[:, 2] * grain).clamp(0, 1)
