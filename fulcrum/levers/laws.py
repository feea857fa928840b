"""The laws that every lever keeps, tried on real models; each raises BrokenLaw."""

import copy
from collections.abc import Callable, Iterator
from functools import reduce
from importlib.util import find_spec
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch

from fulcrum.files.atomic import folder_atomic
from fulcrum.networks.pretrained.folder import _quiet, class_of
from fulcrum.spec.edit import diff, digest, inside
from fulcrum.spec.errors import BadInput, OrderDecides
from fulcrum.spec.phrase import Catalogue, apply, edited_by, parse
from fulcrum.spec.run import RunSpec, System
from fulcrum.training.build import Built, Context, assemble, build
from fulcrum.training.checkpoint import State, weights_hash
from fulcrum.training.dist.ranks import ALONE, Ranks
from fulcrum.training.feed import Feed
from fulcrum.training.interop.diffusers import export, load
from fulcrum.training.loop import StepReport, after, train
from fulcrum.training.model.adapter import merged
from fulcrum.training.model.counted_flops import counted
from fulcrum.training.model.transformer import compile_backbone
from fulcrum.training.painter import Painter
from fulcrum.training.session import Order, perform

# --------------------------------------------------------------------------------------------------
# Tiny random networks of the classes that full-size levers read, written with save_pretrained, so
# that laws can try them.
#
# Strides, channels and tokenizer are those of the real ones; widths are not, and what they say
# means nothing.


WORDS = ("a", "large", "small", "red", "blue", "circle", "square", "on", "the", "left")
BLOCKS = 4  # of an autoencoder: a stride of 8


def written(network: str, root: Path) -> Path:
    """The folder of a tiny network of this class, made at the first time."""
    folder = root / network
    if not folder.exists():
        library, make = NETWORKS[network]
        with torch.random.fork_rng(devices=[]), _quiet(library), folder_atomic(folder) as aside:
            torch.manual_seed(0)
            make(class_of(library, network)).save_pretrained(aside)
            if network == "Qwen3VLTextModel":
                _tokenizer().save_pretrained(aside)
    return folder


def missing(network: str) -> str | None:
    """Why a network of this class cannot be made here, in words, or None."""
    library, _ = NETWORKS[network]
    if find_spec(library) is None:
        return f"{library} is not installed"
    try:
        class_of(library, network)
    except BadInput as error:
        return error.message
    return None


def _autoencoder(channels: int) -> Callable[[Any], Any]:
    return lambda cls: cls(
        latent_channels=channels,
        block_out_channels=(4,) * BLOCKS,
        down_block_types=("DownEncoderBlock2D",) * BLOCKS,
        up_block_types=("UpDecoderBlock2D",) * BLOCKS,
        layers_per_block=1,
        norm_num_groups=2,
        sample_size=32,
    )


def _vision(cls: Any) -> Any:
    sizes = {
        "hidden_size": 16,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "image_size": 32,
        "patch_size": 8,
    }
    inside = {"intermediate_size": 32} if cls.__name__.startswith("DINOv3") else {"mlp_ratio": 2}
    return cls(cls.config_class(**sizes, **inside))


def _language(cls: Any) -> Any:
    turns = {
        "rope_type": "default",
        "rope_theta": 10_000.0,
        "mrope_section": [2, 1, 1],
        "mrope_interleaved": True,
    }
    return cls(
        cls.config_class(
            vocab_size=4 + len(WORDS),
            hidden_size=16,
            intermediate_size=32,
            num_hidden_layers=1,
            num_attention_heads=2,
            num_key_value_heads=1,
            head_dim=8,
            max_position_embeddings=128,
            rope_parameters=turns,
        )
    )


def _tokenizer() -> Any:
    """Splits at spaces; as Qwen's it gives an empty prompt no token."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    vocabulary = {
        word: number for number, word in enumerate(("<pad>", "<eos>", "<bos>", "<unk>", *WORDS))
    }
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Whitespace()
    named = {"pad_token": "<pad>", "eos_token": "<eos>", "bos_token": "<bos>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=words, model_max_length=128, **named)  # type: ignore[no-untyped-call]


# class -> its library, and how a tiny one is made
NETWORKS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "AutoencoderKLFlux2": ("diffusers", _autoencoder(32)),
    "AutoencoderKL": ("diffusers", _autoencoder(16)),
    "Dinov2Model": ("transformers", _vision),
    "DINOv3ViTModel": ("transformers", _vision),
    "Qwen3VLTextModel": ("transformers", _language),
}


# --------------------------------------------------------------------------------------------------
# The ground on which a lever is tried: the smallest run that has every part, in the form that the
# lever needs.


TINY = (
    "model.width=32",
    "model.depth=4",
    "model.heads=2",
    "budget.batch=8",
    "budget.images=48",
    "data.source.count=64",
    "data.source.max_objects=2",
    "sample.steps=2",
)

# Tried in this order: a lever is held to the laws on the first ground that it fits.
GROUNDS: dict[str, tuple[str, ...]] = {
    "latents": (),
    "synthetic pictures": ("data.source.domain=synthetic",),
    "bf16 storage": ("precision.storage=bf16",),
    "pixels": ("encode.codec=pixels", "model.patch=8", "flow.predict=x"),
    "a longer run": ("budget.images=96",),
    "carried tokens": ("model.route=carry(start=1, end=-2, drop=0.5)",),
    "aligned": ("terms=[flow_matching, alignment]", "encode.teachers=[world_teacher]"),
    "aligned layers": (
        "model.patch=4",
        "terms=[flow_matching, alignment]",
        "encode.teachers=[world_teacher]",
    ),
    "contrasted samples": ("terms=[flow_matching, contrastive]",),
    "cropped pictures": ("data.source.crop=0.25",),
    "fused tokens": ("model.route=drop_and_fuse(start=1, end=-2, drop=0.75, path_drop=0.05)",),
    "weights to begin from": ("start=stand_in",),
}


def tried(lever: type[Any], folder: Path) -> Any:
    """A lever as the laws try it: with its defaults, and a tiny random network where it reads one
    from a folder."""
    if not hasattr(lever, "network"):
        return lever()

    return lever(path=str(written(lever.network, folder / "networks")))


class Ground(NamedTuple):
    """A tiny baseline."""

    name: str
    run: RunSpec


def grounds(catalogue: Catalogue) -> Iterator[Ground]:
    for name, settings in GROUNDS.items():
        yield Ground(name, parse("spark", catalogue, [*TINY, *settings]).run)


def usable(lever: Any, catalogue: Catalogue) -> list[Ground]:
    """Every ground that a lever fits."""
    return [ground for ground in grounds(catalogue) if fits(lever, ground.run) is None]


def fits(lever: Any, run: RunSpec) -> str | None:
    """Why a lever, or several together, cannot be tried on this run, or None."""
    try:
        edited = apply(run, lever if isinstance(lever, tuple) else (lever,))
        return (
            edited.model.learned.problem(edited)
            if diff(run, edited)
            else "it changes nothing there"
        )
    except BadInput as error:
        return error.message


def ground_of(lever: Any, catalogue: Catalogue) -> Ground:
    """The first ground that a lever fits, or the first of all for one that fits none: the law of
    edits will say so."""
    known = grounds(catalogue)  # most levers fit the first: the others are not made
    first = next(known)
    return next(
        (ground for ground in chain([first], known) if fits(lever, ground.run) is None), first
    )


# --------------------------------------------------------------------------------------------------
# Where levers are tried: their grounds, trainings that are kept, and what a training leaves behind.


PROMPTS = ("a large red circle on the left", "a small blue square")


class BrokenLaw(Exception):
    """What was expected of a lever and what was found."""


class _Killed(Exception):
    """Ends a training in the middle, as a lost machine would."""


class Trained(NamedTuple):
    """A run after its last step, and what it left behind."""

    built: Built
    prints: dict[str, str]  # what a lever may change, as hashes


class Court:
    """Where levers are tried. Baselines are trained once per ground and kept."""

    def __init__(self, catalogue: Catalogue, folder: Path, system: System | None = None) -> None:
        self.catalogue, self.folder, self.system = catalogue, folder, system or System()
        self.kept: dict[str, Trained] = {}
        self.flops: dict[str, float] = {}
        self.grounds: dict[Any, Ground] = {}
        self.usable: dict[Any, list[Ground]] = {}
        # witness and resume ask for the same training, one after the other
        self.last: tuple[Any, Trained] | None = None
        self.agree: dict[Any, bool] = {}
        self.number = 0

    def feed(self, run: RunSpec) -> Feed:
        return Feed(run, 0, self.folder / "cache", device=self.system.device)

    def assembled(self, run: RunSpec, system: System | None = None) -> Built:
        return assembled(run, self.feed(run), system or self.system)

    def case(self, lever: Any) -> "Case":
        if lever not in self.grounds:
            self.grounds[lever] = ground_of(lever, self.catalogue)
        ground = self.grounds[lever]
        return Case(self, lever, ground, lever.edit(ground.run))

    def shared(self, one: Any, other: Any) -> Ground | None:
        """A ground that both levers fit, if there is one."""
        for lever in (one, other):
            if lever not in self.usable:
                self.usable[lever] = usable(lever, self.catalogue)
        names = {ground.name for ground in self.usable[other]}
        return next((ground for ground in self.usable[one] if ground.name in names), None)

    def baseline(self, ground: Ground) -> Trained:
        if ground.name not in self.kept:
            self.kept[ground.name] = self.trained(ground.run)
        return self.kept[ground.name]

    def baseline_flops(self, ground: Ground) -> float:
        if ground.name not in self.flops:
            self.flops[ground.name] = self.counted(ground.run)
        return self.flops[ground.name]

    def commute(self, one: Any, other: Any, ground: Ground) -> bool:
        """Do both orders give the same run, or a conflict? Asked once for each pair, whichever of
        the two is tried."""
        pair = frozenset((one, other)), ground.name
        if pair not in self.agree:
            runs = [_together(ground.run, levers) for levers in ((one, other), (other, one))]
            self.agree[pair] = runs[0] == runs[1]
        return self.agree[pair]

    def trained_once(self, case: "Case") -> Trained:
        """The case's run, trained; the last one is kept. Two levers may describe a run alike and
        build it differently."""
        asked = case.lever, digest(case.run)
        if self.last is None or self.last[0] != asked:
            self.last = asked, self.trained(case.run)
        return self.last[1]

    def trained(self, run: RunSpec, killed_after: int | None = None) -> Trained:
        """Train through the session that the command uses; if asked, lose the process after some
        steps and start again."""
        self.number += 1
        last: list[StepReport] = []

        def watch(look: StepReport) -> None:
            last[:] = [look]
            if killed_after is not None and look.state.images > killed_after * run.budget.batch:
                raise _Killed

        def order(out: Path) -> Order:
            cache = out / "cache"
            if not cache.exists():
                out.mkdir(parents=True, exist_ok=True)
                cache.symlink_to(self.folder / "cache", target_is_directory=True)
            return Order(run, 0, "law", out, self.system, quiet=True)

        (self.folder / "cache").mkdir(parents=True, exist_ok=True)
        asked = order(self.folder / f"run-{self.number}")
        if killed_after is not None:
            try:
                perform(asked, _silent, lambda *_: [watch])
                raise BrokenLaw("a run that should have been interrupted went to its end")
            except _Killed:
                killed_after = None
        perform(asked, _silent, lambda *_: [watch])
        built = last[0].built
        return Trained(built, fingerprints(built))

    def counted(self, run: RunSpec) -> float:
        """FLOPs of the whole tiny training, forward, backward and optimizer."""
        built = self.assembled(run)
        # frozen networks are no part of it, whichever test comes first
        for job in built.feed.jobs():
            built.feed.cache.finished(job)
        return counted(lambda: train(built, State(), [], lambda: False))


def assembled(
    run: RunSpec, feed: Feed, system: System | None = None, ranks: Ranks = ALONE
) -> Built:
    """A run of the laws, with the weights that it begins from."""
    system = system or System()
    return assemble(
        run, 0, system, feed, run.start.build(Context(run, 0, system, ranks=ranks)), ranks
    )


class Case(NamedTuple):
    """One lever before the court."""

    court: Court
    lever: Any
    ground: Ground
    run: RunSpec  # the ground with the lever


def fingerprints(built: Built) -> dict[str, str]:
    """What a lever may change: trained weights, averaged weights, and the pictures drawn with
    them."""
    weights = built.average.weights(built.step.backbone)
    painter = Painter.of(built)
    pictures = torch.cat(list(painter.pictures(PROMPTS, 0, np.arange(len(PROMPTS)))))
    return {
        "weights": weights_hash(dict(built.step.backbone.state_dict())),
        "averaged weights": weights_hash(weights),
        "samples": weights_hash({"pictures": pictures}),
    }


def _silent(_: str) -> None:
    pass


def _together(run: RunSpec, levers: tuple[Any, ...]) -> RunSpec | None:
    """None: refused. A pair that is refused only because its order would decide the run gives that
    run, to be compared."""
    try:
        return apply(run, levers)
    except OrderDecides:
        return reduce(lambda edited, lever: edited_by(lever, edited), levers, run)
    except BadInput:
        return None


# --------------------------------------------------------------------------------------------------
# The laws that every lever keeps, tried on real models: each law is a function that raises
# BrokenLaw.
#
# Six laws are about the lever (edit, commute, witness, resume, leave, cost), three about the parts
# that it puts into a run (compile, recompute, copy). The tenth, world, needs two processes and
# stands in `two_processes.py`.


FLOPS_WITHIN = 0.05  # of the declared cost and the counted one
COMPILED_WITHIN = 1e-5  # of a loss, relative, fp32
KINDS = ("weights", "averaged weights", "samples")


def _require(holds: bool, lever: Any, otherwise: str) -> None:
    if not holds:
        raise BrokenLaw(f"'{lever.name}' {otherwise}")


# ---- the lever


def edit(case: Case) -> None:
    """The edit changes something, only what it declares, and gives the same run every time."""
    changes = diff(case.ground.run, case.lever.edit(case.ground.run))
    _require(bool(changes), case.lever, "changes nothing")
    stray = [change.path for change in changes if not inside(change.path, case.lever.touches)]
    _require(not stray, case.lever, f"changes {', '.join(stray)}, which it does not declare")
    untouched = next(
        ground.run for ground in grounds(case.court.catalogue) if ground.name == case.ground.name
    )
    again = [case.lever.edit(case.ground.run) for _ in range(2)]
    _require(all(run == case.run for run in again), case.lever, "edits differently each time")
    _require(
        digest(case.ground.run) == digest(untouched), case.lever, "changes the run that it is given"
    )
    reason = fits(case.lever, case.ground.run)
    _require(
        reason is None, case.lever, f"fits none of the grounds; on {case.ground.name}: {reason}"
    )


def commute(case: Case) -> None:
    """With every other lever: the same run in both orders, or a conflict in both."""
    for other in (
        cls() for cls in case.court.catalogue.levers.values() if cls.name != case.lever.name
    ):
        shared = case.court.shared(case.lever, other) or case.ground
        agree = case.court.commute(case.lever, other, shared)
        _require(
            agree,
            case.lever,
            f"does not commute with '{other.name}' on {shared.name}: order decides the run",
        )


def witness(case: Case) -> None:
    """What the lever says it affects differs from the baseline's after training, all else is
    bit-equal; it sees itself."""
    base, with_lever = case.court.baseline(case.ground), case.court.trained_once(case)
    _require(
        bool(case.lever.witness(with_lever.built)),
        case.lever,
        "is not seen by its own witness where it is on",
    )
    _require(
        not case.lever.witness(base.built), case.lever, "is seen by its own witness where it is off"
    )
    unknown = [what for what in case.lever.affects if what not in KINDS]
    _require(not unknown, case.lever, f"affects {unknown}: expected some of {', '.join(KINDS)}")
    expected = set(case.lever.affects) | (set(KINDS) if "weights" in case.lever.affects else set())
    for what in KINDS:
        differs = base.prints[what] != with_lever.prints[what]
        _require(
            differs == (what in expected),
            case.lever,
            f"should {'' if what in expected else 'not '}change the {what}, and does"
            f" {'' if differs else 'not'}",
        )
    began = weights_hash(dict(case.court.assembled(case.run).step.backbone.state_dict()))
    _require(
        with_lever.prints["averaged weights"] != began,
        case.lever,
        "draws with the weights that training began with",
    )
    _leaves_others_alone(case)


def _leaves_others_alone(case: Case) -> None:
    """A lever that only adds terms changes no other term of the first step."""
    paths = [change.path for change in diff(case.ground.run, case.run)]
    added = all(inside(path, ("terms", "encode.teachers")) for path in paths) and any(
        inside(path, ("terms",)) for path in paths
    )
    first = [case.court.assembled(run) for run in (case.ground.run, case.run)] if added else []
    parts = [built.step(*built.feed.at(0), built.weights(0)).parts for built in first]
    for name in parts[0] if parts else ():
        _require(
            torch.equal(parts[0][name], parts[1][name]),
            case.lever,
            f"changes the term '{name}', which is another's",
        )


def resume(case: Case) -> None:
    """Six steps equal three and three through a real checkpoint; a step depends on nothing but its
    batch and its draw."""
    whole, broken = case.court.trained_once(case), case.court.trained(case.run, killed_after=3)
    _require(
        whole.prints == broken.prints,
        case.lever,
        "does not resume exactly: it uses what is not in the checkpoint",
    )
    built = case.court.assembled(case.run)
    for phase in built.phases:
        batch, draw = built.feed.at(phase.start)
        one, two = (built.step(batch, draw, built.weights(phase.start)).total for _ in range(2))
        _require(
            torch.equal(one, two),
            case.lever,
            "gives another loss for the same batch and draw: it draws by itself",
        )


def leave(case: Case) -> None:
    """What is only for training is not in the exported model; what cannot be exported is refused,
    never dropped."""
    built = build(case.run)
    folder = case.court.folder / f"export-{case.lever.name}"
    try:
        exported = load(export(built.backbone, folder))
    except BadInput as error:
        _require(
            not case.lever.card.train_only,
            case.lever,
            f"should leave nothing behind, but: {error.message}",
        )
        return
    shapes = {name: value.shape for name, value in exported.state_dict().items()}
    own = {name: value.shape for name, value in merged(built.backbone.state_dict()).items()}
    _require(shapes == own, case.lever, "loses a tensor of its model on export")
    if case.lever.card.train_only:
        plain = {
            name: value.shape
            for name, value in build(case.ground.run).backbone.state_dict().items()
        }
        _require(
            shapes == plain, case.lever, "is only for training, but its model is not the baseline's"
        )


def cost(case: Case) -> None:
    """The declared FLOPs of a step, over the baseline's, are those counted."""
    declared = case.lever.cost(case.ground.run).flops
    ratio = case.court.counted(case.run) / case.court.baseline_flops(case.ground)
    _require(
        abs(declared / ratio - 1) <= FLOPS_WITHIN,
        case.lever,
        f"declares {declared:.3f} times the FLOPs, {ratio:.3f} were counted",
    )


# ---- what it puts into a run


def compiles(case: Case) -> None:
    """Compiled equals eager, without a graph break (a trivial backend: the real compiler is asked
    in the slow suite)."""
    eager, graph = (case.court.assembled(case.run) for _ in range(2))
    for model in graph.step.models():
        compile_backbone(model, backend="eager")
    for phase in eager.phases:
        batch, draw = eager.feed.at(phase.start)
        one, two = (
            float(built.step(batch, draw, built.weights(phase.start)).total.detach())
            for built in (eager, graph)
        )
        _require(
            abs(one - two) <= COMPILED_WITHIN * abs(one),
            case.lever,
            f"compiled gives {two}, eager {one}",
        )


def recompute(case: Case) -> None:
    """Activation checkpointing changes no bit."""
    hashes = set()
    for blocks in ("none", "selective", "full"):
        built = case.court.assembled(
            case.run, case.court.system.model_copy(update={"recompute": blocks})
        )
        train(built, State(), [], after(2))
        hashes.add(weights_hash(dict(built.step.state_dict())))
    _require(len(hashes) == 1, case.lever, "trains differently when activations are computed again")


def copies(case: Case) -> None:
    """A deep copy computes what the original computes, and so does a model filled with the averaged
    weights."""
    built = case.court.assembled(case.run)
    train(built, State(), [], after(1))
    batch, draw = built.feed.at(0)
    own = built.step(batch, draw, built.weights(0)).total
    _require(
        torch.equal(copy.deepcopy(built.step)(batch, draw, built.weights(0)).total, own),
        case.lever,
        "computes something else in a deep copy",
    )
    built.average.start(built.step.backbone)
    twin = build(case.run)
    twin.load_state_dict(built.step.state_dict())
    twin.backbone.load_state_dict(built.average.weights(built.step.backbone))
    _require(
        torch.equal(twin(batch, draw, built.weights(0)).total, own),
        case.lever,
        "computes something else with its averaged weights",
    )


LAWS: dict[str, Callable[[Case], None]] = {
    "edit": edit,
    "commute": commute,
    "witness": witness,
    "resume": resume,
    "leave": leave,
    "cost": cost,
    "compile": compiles,
    "recompute": recompute,
    "copy": copies,
}
