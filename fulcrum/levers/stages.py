"""Levers that change the data or the rate in stages: real data, SFT, resolution ladder, rate
stage."""

from typing import Annotated, Literal

from fulcrum.data.fillers import Folder, World, varied_captions
from fulcrum.levers import published as price
from fulcrum.levers.base import Built, Card, Cost, Lever
from fulcrum.levers.published import claim
from fulcrum.spec.edit import during, put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import denoiser_training_flops
from fulcrum.spec.record import Count, Fraction, Part, Within
from fulcrum.spec.run import RATE, RunSpec
from fulcrum.spec.slots import DataContext, SourceFiller
from fulcrum.training.flow.fillers import ShiftedTimes
from fulcrum.training.optim.schedule import rates

# --------------------------------------------------------------------------------------------------
# What levers with a late stage share: a learning rate of the stage's own, and in words what rate it
# came to.


StageRate = Annotated[float, Within("(0, 1]")]  # share of the run's own rate


def at_own_rate(run: RunSpec, start: float, rate: float | None) -> RunSpec:
    """The run with another rate from `start` on, warmed up again; none: the run's own schedule goes
    on."""
    return run if rate is None else during(run, start, 1.0, RATE, rate * run.optim.lr)


def rate_since(run: RunSpec, start: float) -> str:
    """What rate a run has from a share of its budget on: its mean over the peak's, and its part of
    all rates summed."""
    steps = rates(run)
    late = steps[round(start * len(steps)) :]
    mean, part = sum(late) / len(late), sum(late) / sum(steps)
    return (
        f"the last {len(late) / len(steps):.0%} of the steps have a mean learning rate of"
        f" {mean:.0%} of the peak, {part:.1%} of the run's summed rate"
    )


# --------------------------------------------------------------------------------------------------
# Real data: photographs instead of clean drawings.


SCOPE = "1 M real instead of 1 M synthetic images, 256 px latents, 1.2 B parameters, 100k steps"


class RealData(Lever):
    #: your own real pictures, a folder that was imported; none: the world's
    source: str | None = None

    name = "real_data"
    touches = ("data.source",)
    card = Card(
        says=(
            "the world's own scenes as photographs: light, grain, blur and dust instead of clean"
            " colours; or a folder of real pictures in the place of a folder of synthetic ones"
        ),
        claims=(
            claim(
                "fid",
                -1.6,
                SCOPE,
                note="18.20 to 16.6: the better FID came with the worse CMMD and DINO-MMD",
            ),
            claim("cmmd", +0.09, SCOPE),
            claim("dino_mmd", +0.07, SCOPE),
        ),
        warns=(
            "the recipes are real by default: its baseline is made with --set"
            " data.source.domain=synthetic. In the world the scenes stay the same; published, and"
            " in folders, other pictures with other captions take their place. Both arms are judged"
            " by what judges the baseline: for folders let data.source.judged name the real ones"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        source = run.data.source
        if isinstance(source, World) and self.source is None:
            if source.domain == "real":
                raise BadInput(
                    "'real_data' would change nothing: the data is real already",
                    "for the synthetic baseline that it is held against add --set"
                    " data.source.domain=synthetic",
                )
            return put(run, "data.source.domain", "real")
        if isinstance(source, Folder) and self.source is not None:
            judged = source.judged or source.path
            return put(run, "data.source", Folder(path=self.source, judged=judged))
        return run  # `needs` says what is missing

    def needs(self, run: RunSpec) -> str | None:
        source = run.data.source
        if isinstance(source, World):
            return (
                None
                if self.source is None
                else "the embedded world has real pictures of its own: leave `source` out"
            )
        if self.source is None:
            return f"{source} has no real domain: name your own, real_data(source='FOLDER')"
        if not isinstance(source, Folder):
            return f"a folder takes the place of a folder, not of {source}"
        if source.path != Folder(path=self.source).path:
            return "something else replaced the pictures"
        source.caption_names()  # refuses what is no imported folder
        return None

    def witness(self, built: Built) -> bool:
        # a stage may be synthetic before
        source = built.feed.source_at(built.run.budget.images - 1)
        if self.source is not None:
            wanted = Folder(path=self.source).build(DataContext(built.run))
            return bool(source.fingerprint() == wanted.fingerprint())
        return bool(getattr(getattr(source, "inner", source), "domain", "") == "real")


# --------------------------------------------------------------------------------------------------
# Synthetic, then real: clean pictures teach composition first, real ones texture afterwards.


class SyntheticThenReal(Lever):
    until: Fraction = 0.5  # share of the budget on synthetic pictures
    #: your own synthetic pictures, a folder that was imported; none: the world's
    synthetic: str | None = None
    #: of the real part, a share of the run's own; none: the run's schedule goes on
    rate: StageRate | None = 1.0

    name = "synthetic_then_real"
    touches = ("data.stages",)
    card = Card(
        says=(
            "the first part of the budget on the clean domain of the same scenes, or on a folder of"
            " synthetic pictures, and the run's own pictures afterwards (published in words, at a"
            " constant rate: synthetic, real, then a curated set; the one number, for all real"
            " against all synthetic, stands on the card of that decision). The real part has the"
            " run's peak rate, warmed up again and, where the recipe decays, decayed within that"
            " part"
        ),
        warns=(
            "on a recipe that decays it learns more in all than the baseline; rate=none keeps the"
            " schedule, and the real part then has what the decay leaves"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        if self.synthetic is not None:
            run = during(run, 0.0, self.until, "data.source", Folder(path=self.synthetic))
        elif isinstance(run.data.source, World):
            run = during(run, 0.0, self.until, "data.source.domain", "synthetic")
        else:
            return run  # `needs` says what is missing
        return at_own_rate(run, self.until, self.rate)

    def needs(self, run: RunSpec) -> str | None:
        source = run.data.source
        if self.synthetic is not None:
            own = Folder(path=self.synthetic)
            same = isinstance(source, Folder) and own.hashes() == source.hashes()
            return "its synthetic pictures are the run's own" if same else None
        if not isinstance(source, World):
            return (
                f"{source} has no synthetic domain: name your own,"
                " synthetic_then_real(synthetic='FOLDER')"
            )
        return None if source.domain == "real" else "the run's own data is synthetic already"

    def in_run(self, run: RunSpec) -> str:
        return rate_since(run, self.until)

    def witness(self, built: Built) -> bool:
        first, last = (built.feed.source_at(at) for at in (0, built.run.budget.images - 1))
        if self.synthetic is not None:
            return bool(first.fingerprint() != last.fingerprint())
        return [
            getattr(getattr(source, "inner", source), "domain", "") for source in (first, last)
        ] == [
            "synthetic",
            "real",
        ]


# --------------------------------------------------------------------------------------------------
# SFT stage: the last part of the budget on a small curated set, at a rate of its own, told in
# several lengths.


WORLDS = 512  # curated pictures of the embedded world, unless told


class SFTStage(Lever):
    start: Fraction = 0.9  # share of the budget after which the curated set is used
    #: your own curated pictures, a folder that was imported; none: the world's
    source: str | None = None
    count: Count | None = None  # curated pictures; none: 512 of the world, all of a folder
    #: of the stage: of all lengths there are, or those of the run
    captions: Literal["varied", "kept"] = "varied"
    #: of that stage, a share of the run's own; none: the run's schedule goes on
    rate: StageRate | None = 1.0

    name = "sft_stage"
    touches = ("data.stages",)
    card = Card(
        says=(
            "a short last stage on few curated pictures with captions of several lengths (published"
            " in words: 3,350 pairs for 20,000 steps after a run at a constant rate; no number was"
            " given). Of the world: one or two objects, none small, well apart, no stripes behind,"
            " the cleanest of eight photographs. The stage has the run's peak rate, warmed up again"
            " and, where the recipe decays, decayed within the stage"
        ),
        warns=(
            "pictures, caption lengths and rate change together, as published: rate=none and"
            " captions=kept change the pictures alone, and a recipe whose rate decays then leaves"
            " them next to nothing to teach. Curated pictures are narrower than the reference:"
            " distances to it may grow while single pictures get better"
        ),
    )

    def _curated(self, source: SourceFiller) -> World | Folder | None:
        if self.source is not None:
            return Folder(path=self.source, count=self.count)
        if not isinstance(source, World):
            return None
        return World(
            split="curated",
            domain="real",
            count=self.count or WORLDS,
            max_objects=source.max_objects,
        )

    def edit(self, run: RunSpec) -> RunSpec:
        curated = self._curated(run.data.source)
        if curated is None:
            return run  # `needs` says what is missing
        run = during(run, self.start, 1.0, "data.source", curated)
        mixed = varied_captions(curated) if self.captions == "varied" else None
        run = run if mixed is None else during(run, self.start, 1.0, "data.caption", mixed)
        return at_own_rate(run, self.start, self.rate)

    def needs(self, run: RunSpec) -> str | None:
        curated = self._curated(run.data.source)
        if curated is None:
            return (
                f"{run.data.source} has no curated set: name your own, sft_stage(source='FOLDER')"
            )
        if self.captions == "varied" and varied_captions(curated) is None:
            return (
                f"the curated pictures are captioned in one length, {curated}: write captions=kept"
            )
        return None

    def cost(self, run: RunSpec) -> Cost:
        """Shorter captions are read in the stage."""
        mixed = (
            varied_captions(run.data.source)
            if isinstance(run.data.source, World) and self.captions == "varied"
            else None
        )
        ratio = price.of_captions(run, mixed).flops if mixed else 1.0
        return Cost(flops=1 + (1 - self.start) * (ratio - 1))

    def in_run(self, run: RunSpec) -> str:
        return rate_since(run, self.start)

    def witness(self, built: Built) -> bool:
        """The last phase is on this curated set, and captions vary there."""
        last, wanted = built.phases[-1].run.data, self._curated(built.run.data.source)
        if wanted is None or last.source != wanted:
            return False
        read = len(built.feed.source_at(built.run.budget.images - 1))
        return read <= (wanted.count or read) and (
            self.captions == "kept" or last.caption == varied_captions(wanted)
        )


# --------------------------------------------------------------------------------------------------
# Resolution ladder: the first part of the budget on smaller pictures, with less shift of the times.
#
# k of the small stage = max(1, k · small / large): a small picture is destroyed by less noise


STAGED = ("data.size", "flow.time.scale")


class ResolutionLadder(Lever):
    start_size: Count | None = None  # pixels on a side in the first stage; none: half of the run's
    until: Fraction = 0.5  # share of the budget on small pictures
    shift: Literal["scaled", "kept"] = "scaled"  # of the times, in the first stage

    name = "resolution_ladder"
    touches = ("data.stages",)
    card = Card(
        says=(
            "small pictures first, the run's own size afterwards: more images for the same FLOPs;"
            " pays where most of the tokens are saved (published: 512 px, then 1024 px; no number"
            " was given)"
        ),
        train_only=True,
        warns="at equal images it trains on fewer tokens: compare at equal FLOPs too",
    )

    def _small(self, run: RunSpec) -> int:
        return self.start_size or run.data.size // 2

    def edit(self, run: RunSpec) -> RunSpec:
        small = self._small(run)
        run = during(run, 0.0, self.until, "data.size", small)
        if self.shift == "scaled" and isinstance(run.flow.time, ShiftedTimes):
            run = during(run, 0.0, self.until, "flow.time.scale", small / run.data.size)
        return run

    def needs(self, run: RunSpec) -> str | None:
        from fulcrum.data.world.scene import SMALLEST

        small = self._small(run)
        if small >= run.data.size:
            return (
                f"it starts at {small} pixels, but the run's own size is {run.data.size}: nothing"
                " to climb"
            )
        if isinstance(run.data.source, World) and small < SMALLEST:
            return f"it starts at {small} pixels, but the world is drawn at {SMALLEST} or more"
        if self.shift == "scaled" and not isinstance(run.flow.time, ShiftedTimes):
            return (
                f"it scales the shift of the times, and flow.time has none: {run.flow.time}; write"
                " shift=kept"
            )
        return None

    def cost(self, run: RunSpec) -> Cost:
        without = put(
            run,
            "data.stages",
            tuple(stage for stage in run.data.stages if stage.path not in STAGED),
        )
        return Cost(
            flops=denoiser_training_flops(self.edit(without)) / denoiser_training_flops(without)
        )

    def witness(self, built: Built) -> bool:
        first, last = (
            built.feed.at(at, 1)[0].x0[0, 0].numel() for at in (0, built.run.budget.images - 1)
        )
        grown = first / last / (self._small(built.run) / built.run.data.size) ** 2
        # pictures of several shapes have about as many pixels
        return bool(first < last and abs(grown - 1) < 0.25)


# --------------------------------------------------------------------------------------------------
# Rate stage: the last part of the budget at a learning rate of its own, warmed up again.
#
# lr ──╮ warm-up, plateau, decay as ever ──╲    ╱‾‾╲   rate · lr: warmed up over optim.rewarm
#      ╯                                    ╲──╯    ╲  of the stage, decayed over optim.decay of it


class RateStage(Lever):
    start: Part = 0.9  # share of the budget after which it begins
    rate: StageRate = 1.0  # share of the run's own rate

    name = "rate_stage"
    touches = ("data.stages",)
    card = Card(
        says=(
            "the last part of the budget at a rate of its own and nothing else changed: what a late"
            " stage owes to its rate alone is seen beside this arm (published nowhere; it is the"
            " control of such stages)"
        ),
        train_only=True,
        warns="on a recipe whose rate decays it learns more in all than the baseline does",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        return at_own_rate(run, self.start, self.rate)

    def in_run(self, run: RunSpec) -> str:
        return rate_since(run, self.start)

    def witness(self, built: Built) -> bool:
        """The built schedule has such a stage."""
        last = built.schedule.stages[-1:]
        return bool(
            last
            and last[0].end == built.run.budget.images
            and abs(last[0].share - self.rate) < 1e-9
        )
