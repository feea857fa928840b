"""Audit a target: tell what it is, read it, and hold the rules to it."""

import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple
from weakref import ref

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from fulcrum.advice.configs import SUFFIXES, ConfigFamily, ConfigFile, read_config
from fulcrum.advice.published import NO_EVIDENCE, OwnEvidence
from fulcrum.advice.rule import AuditRule, Fault, Sightings, stacked
from fulcrum.advice.rules import RULES, Ignores, Judge, chosen_rules, ignores_in, unreadable
from fulcrum.advice.scripts import Script, TrainingProject, project_files, read_project, read_script
from fulcrum.advice.steps import Kind, RanOperation, StepTrace
from fulcrum.files.paths import at_home
from fulcrum.files.user_code import parse_toml
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.progress import Tally

if TYPE_CHECKING:
    from fulcrum.advice.tensors import ModelPart


# --------------------------------------------------------------------------------------------------
# What an audit was asked to look at: told apart, read, handed to every rule; what the rules saw
# becomes faults.


# one of them beside a baseline makes a plan
PLAN_FIELDS = {"seeds", "arms", "stack", "interactions"}


class AuditOptions(NamedTuple):
    """How a target is looked at."""

    values: int = 0  # of each tensor of a checkpoint; none: headers only
    rate: float | None = None  # learning rate that a checkpoint is to be trained on with
    tokens: int = 77  # that the text encoder reads
    codec: str = ""  # folder of an autoencoder to try on a data set's pictures
    out: Path = Path("runs")  # where runs and studies of ours are
    files: tuple[Path, ...] = ()  # a person's own levers and recipes
    settings: tuple[str, ...] = ()  # path=value, of a phrase
    score: str = ""  # who says how well a data set's pictures and captions fit: world, clip=FOLDER
    caption: str = ""  # name of the captions that are scored; empty: long, or the first
    only: tuple[str, ...] = ()  # rules that are asked; none named: all
    skip: tuple[str, ...] = ()  # rules that are not
    say: Callable[[str], None] | None = None  # to whom progress is told


class Audit(NamedTuple):
    target: str
    kind: str
    looked_at: str  # in words: how much of it
    faults: list[Fault]  # most gain per effort first
    ignored: list[tuple[str, str, str]]  # rule, place, reason given

    def plain(self) -> dict[str, Any]:
        return {
            "target": self.target,
            "kind": self.kind,
            "looked_at": self.looked_at,
            "faults": [fault.plain() for fault in self.faults],
            "ignored": [
                {"rule": rule, "place": place, "reason": reason}
                for rule, place, reason in self.ignored
            ],
        }


def audit(
    target: str, options: AuditOptions | None = None, evidence: OwnEvidence = NO_EVIDENCE
) -> Audit:
    """Look at a path, a run's key or a phrase. Scripts are parsed and never run; nothing is
    changed."""
    options = options or AuditOptions()
    path = at_home(target)
    reader = (
        _file_reader(path) if path.is_file() else _folder_reader(path) if path.is_dir() else _named
    )
    judge = Judge(evidence, chosen_rules(options.only, options.skip))
    told = reader(target, path, options, judge)
    if path.is_dir() and reader is not _project:
        told = _with_scripts(told, path, judge)
    return told._replace(faults=stacked(told.faults))


def _file_reader(path: Path) -> Callable[[str, Path, AuditOptions, Judge], Audit]:
    kind = path.suffix.lower()
    if kind == ".py":
        return _script
    if kind in SUFFIXES:
        return _plan if kind == ".toml" and _is_plan(path) else _config
    if kind == ".safetensors":
        return _checkpoint
    if kind in (".tar", ".parquet"):
        return _data
    if kind in (".pt", ".pth", ".bin", ".ckpt", ".pkl"):
        raise BadInput(
            f"{path} is a pickle, which runs code when it is opened",
            "convert it to safetensors first",
        )
    raise BadInput(
        f"{path} is nothing that an audit can read",
        "expected .py, .yaml, .json, .toml, .safetensors, .tar, .parquet, or a folder",
    )


def _folder_reader(path: Path) -> Callable[[str, Path, AuditOptions, Judge], Audit]:
    from fulcrum.advice.tensors import is_model_folder

    if (path / "store.json").is_file():
        return _data
    if (path / "about.json").is_file():
        return _run
    if is_model_folder(path):
        return _model
    if any(path.glob("*.safetensors")):
        return _checkpoint
    if project_files(path) and not _holds_pictures(path):
        return _project
    return _data


def _holds_pictures(path: Path) -> bool:
    """Data rather than code: shards, tables, or pictures; beside scripts only pictures that have
    captions, for code may come with a figure."""
    from fulcrum.data.readers.pictures import SUFFIXES as PICTURES

    files = {file.name: file for file in path.iterdir() if file.is_file()}
    pictures = [file for file in files.values() if file.suffix.lower() in PICTURES]
    if any(file.suffix.lower() == ".py" for file in files.values()):
        tables = (".tar", ".parquet", ".csv", ".jsonl")
        captioned = any(
            f"{file.stem}{suffix}" in files for file in pictures for suffix in (".txt", ".json")
        )
        return captioned or any(file.suffix.lower() in tables for file in files.values())
    return bool(pictures) or any(
        file.suffix.lower() in (".tar", ".parquet") for file in files.values()
    )


def _is_plan(path: Path) -> bool:
    fields = set(_toml(path))
    return "baseline" in fields and bool(PLAN_FIELDS & fields)


def _toml(path: Path) -> dict[str, Any]:
    """What a TOML file holds; nothing where it cannot be read, which its reader will say."""
    try:
        return parse_toml(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}


def _script(target: str, path: Path, options: AuditOptions, judge: Judge) -> Audit:
    script = read_script(path)
    faults, ignored = _of_script(script, target, judge)
    return Audit(
        target,
        "script",
        f"{len(script.source.splitlines()):,} lines, parsed and not run",
        faults,
        ignored,
    )


def _with_scripts(told: Audit, path: Path, judge: Judge) -> Audit:
    """The scripts that lie beside weights or data are looked at too; links, and what lies deeper,
    are not."""
    scripts, faults, ignored = sorted(path.glob("*.py")), [*told.faults], [*told.ignored]
    if not scripts:
        return told
    for file in scripts:
        try:
            if file.is_symlink():
                raise BadInput("it is a link and was not followed", "name the file itself")
            _extend(faults, ignored, _of_script(read_script(file), file.name, judge))
        except BadInput as error:
            faults.append(unreadable(file.name, str(error)))
    count = "1 script" if len(scripts) == 1 else f"{len(scripts)} scripts"
    return told._replace(kind=f"{told.kind} and {count}", faults=faults, ignored=ignored)


def _answered(
    look: Callable[[AuditRule], Sightings], source: str, name: str, judge: Judge
) -> tuple[list[Fault], list[tuple[str, str, str]]]:
    """What every rule saw in a file, less what its comments answer."""
    faults = judge.faults(look, lambda one: f"{name}:{one.place}")
    return ignores_in(source, name).applied(faults)


def _of_script(
    script: Script, name: str, judge: Judge
) -> tuple[list[Fault], list[tuple[str, str, str]]]:
    return _answered(lambda rule: rule.in_script(script), script.source, name, judge)


def _config(target: str, path: Path, options: AuditOptions, judge: Judge) -> Audit:
    config = read_config(path)
    faults, ignored = _of_config(config, target, judge)
    return Audit(target, "configuration", f"{len(config.entries):,} values", faults, ignored)


def _of_config(
    config: ConfigFile, name: str, judge: Judge
) -> tuple[list[Fault], list[tuple[str, str, str]]]:
    return _answered(lambda rule: rule.in_config(config), config.source, name, judge)


def _project(target: str, path: Path, options: AuditOptions, judge: Judge) -> Audit:
    files = project_files(path)
    plans = [file for file in files if file.suffix.lower() == ".toml" and _is_plan(file)]
    project = read_project(path, [file for file in files if file not in plans], options.say)
    tally = Tally("looking at", len(project.scripts) + len(project.configs), options.say, "files")
    faults, ignored = list[Fault](), list[tuple[str, str, str]]()
    for plan in plans:
        try:
            faults += _plan(_below(plan, path), plan, options, judge).faults
        except BadInput as error:
            faults.append(unreadable(_below(plan, path), str(error)))
    for number, script in enumerate(project.scripts, 1):
        _extend(faults, ignored, _of_script(script, _below(script.path, path), judge))
        tally.tell(number)
    for number, config in enumerate(project.configs, len(project.scripts) + 1):
        _extend(faults, ignored, _of_config(config, _below(config.path, path), judge))
        tally.tell(number)
    together = [fault for family in project.families for fault in _of_family(family, path, judge)]
    together += judge.faults(
        lambda rule: rule.in_project(project), lambda one: one.place.removeprefix(f"{path}/")
    )
    sources = [(one.source, one.path) for one in project.scripts] + [
        (one.source, one.path) for one in project.configs
    ]
    comments = Ignores.joined(ignores_in(source, _below(file, path)) for source, file in sources)
    _extend(faults, ignored, comments.applied(together, again=True))
    faults += [unreadable(_below(one.path, path), one.why) for one in project.unread]
    return Audit(target, "project", _counted(project, len(plans)), faults, ignored)


def _of_family(family: ConfigFamily, folder: Path, judge: Judge) -> list[Fault]:
    return judge.faults(
        lambda rule: rule.in_family(family), lambda one: one.place.removeprefix(f"{folder}/")
    )


def _counted(project: TrainingProject, plans: int) -> str:
    arms = sum(len(family.arms) for family in project.families)
    words = [f"{len(project.scripts)} scripts", f"{len(project.configs)} configurations"]
    words += [f"{plans} plans"] if plans else []
    several = "s" if len(project.families) > 1 else ""
    words += [f"{arms} arms held against {len(project.families)} baseline{several}"] if arms else []
    words += [f"{project.orphans} files inherit what was not found"] if project.orphans else []
    return ", ".join(
        words + ([f"{len(project.unread)} files could not be read"] if project.unread else [])
    )


def _extend(
    faults: list[Fault],
    ignored: list[tuple[str, str, str]],
    more: tuple[list[Fault], list[tuple[str, str, str]]],
) -> None:
    faults += more[0]
    ignored += more[1]


def _below(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def _plan(target: str, path: Path, options: AuditOptions, judge: Judge) -> Audit:
    from fulcrum.advice.steps import read_study
    from fulcrum.levers.catalog import with_files
    from fulcrum.studies.plan import Plan
    from fulcrum.studies.plan_file import from_person

    fields = _toml(path)
    unknown = [name for name in fields if name not in Plan.model_fields]
    plan = from_person(
        {name: value for name, value in fields.items() if name not in unknown}, target
    )
    study = read_study(plan, with_files(options.files)[0])
    faults = [
        unreadable(
            f"{target}: {name}", f"a plan has no '{name}'; {nearest(name, Plan.model_fields)}"
        )
        for name in unknown
    ]
    faults += judge.faults(lambda rule: rule.in_plan(study), lambda one: f"{target}: {one.place}")
    if study.arms:
        faults += judge.faults(
            lambda rule: rule.in_run(study.arms[0].run),
            lambda one: f"{target}: baseline: {one.place}",
        )
    return Audit(
        target, "plan", f"{len(study.arms)} arms x {len(study.plan.seeds)} seeds", faults, []
    )


def _named(target: str, path: Path, options: AuditOptions, judge: Judge) -> Audit:
    """A run's key, or a phrase."""
    if (
        re.fullmatch(r"[0-9a-f]{4,64}", target)
        and options.out.is_dir()
        and any(options.out.glob(f"{target}*"))
    ):
        return _run(target, path, options, judge)
    if "/" in target or path.suffix.lower() in (".py", *SUFFIXES, ".safetensors", ".tar"):
        raise BadInput(
            f"there is nothing at {path.absolute()}",
            'give a file, a folder, a run\'s key or a phrase such as "spark + muon"',
        )
    from fulcrum.levers.catalog import with_files
    from fulcrum.spec.phrase import parse

    known = with_files(options.files)[0]
    if target in known.levers:
        raise BadInput(
            f"'{target}' is a lever, not a run",
            f'"spark + {target}" is one; its laws: fulcrum levers check {target}',
        )
    phrase = parse(target, known, options.settings)
    return Audit(
        target, "phrase", "the whole description of the run", _of_run(phrase.run, target, judge), []
    )


def _run(target: str, path: Path, options: AuditOptions, judge: Judge) -> Audit:
    from fulcrum.levers.catalog import with_files
    from fulcrum.spec.edit import read
    from fulcrum.training.run_folder import RunFolder
    from fulcrum.training.trained_run import find_run

    folder = find_run(target, options.out)
    run = read(RunFolder(folder).about()["run"], with_files(options.files)[0].fillers)
    return Audit(
        target, "run", f"the description of {folder.name}", _of_run(run, target, judge), []
    )


def _of_run(run: Any, name: str, judge: Judge) -> list[Fault]:
    return judge.faults(lambda rule: rule.in_run(run), lambda one: f"{name}: {one.place}")


def _checkpoint(target: str, path: Path, options: AuditOptions, judge: Judge) -> Audit:
    from fulcrum.advice.tensors import READ, read_tensors_of

    tensors = read_tensors_of(path, options.values, options.rate)
    faults = judge.faults(
        lambda rule: rule.in_tensors(tensors), lambda one: f"{target}: {one.place}"
    )
    faults += [unreadable(str(file), why) for file, why in tensors.unread]
    numbers = sum(one.numbers for one in tensors.tensors)
    formats = ", ".join(
        f"{count / max(numbers, 1):.0%} {name}" for name, count in tensors.formats.most_common()
    )
    unread = sorted(tensors.formats.keys() - READ.keys())
    apart = f", none of {', '.join(unread)}" if unread else ""
    how = (
        f"{options.values:,} values of each{apart}"
        if options.values
        else "headers only; values: --values 4096"
    )
    return Audit(
        target,
        "checkpoint",
        f"{len(tensors.tensors):,} tensors, {numbers:,} numbers ({formats}); {how}",
        faults,
        [],
    )


def _model(target: str, path: Path, options: AuditOptions, judge: Judge) -> Audit:
    from fulcrum.advice.tensors import read_model_folder

    folder = read_model_folder(path, options.values, options.rate)
    faults = judge.faults(lambda rule: rule.in_folder(folder), lambda one: f"{target}: {one.place}")
    for part in folder.parts:
        faults += _of_part(part, target, judge)
    if not folder.parts:
        raise BadInput(
            f"{path} names no part that is there", "expected a folder as diffusers writes it"
        )
    kinds = ", ".join(
        f"{part.name or 'model'} ({part.declared or part.own or 'no class named'})"
        for part in folder.parts
    )
    return Audit(target, "model folder", f"{folder.pipeline or 'one model'}: {kinds}", faults, [])


def _of_part(part: "ModelPart", target: str, judge: Judge) -> list[Fault]:
    def look(rule: AuditRule) -> Sightings:
        # then it knows itself in which parts its fault is one
        own = "in_folder" in vars(type(rule))
        return () if own else rule.in_tensors(part.tensors)

    faults = judge.faults(look, lambda one: f"{target}/{part.name}: {one.place}")
    return faults + [unreadable(str(file), why) for file, why in part.tensors.unread]


def _data(target: str, path: Path, options: AuditOptions, judge: Judge) -> Audit:
    from fulcrum.advice.caption_sets import read_captions

    captions = read_captions(target, options.tokens, say=options.say)
    faults = judge.faults(
        lambda rule: rule.in_captions(captions),
        lambda one: target if one.place == captions.path else f"{target}: {one.place}",
    )
    if options.score:
        from fulcrum.advice.caption_sets import try_pairs

        pairs = try_pairs(target, options.score, options.caption)
        faults += judge.faults(
            lambda rule: rule.in_pairs(pairs), lambda one: f"{target}: {one.place}"
        )
    if options.codec:
        from fulcrum.advice.tensors import try_codec

        trial = try_codec(target, options.codec)
        faults += judge.faults(
            lambda rule: rule.in_codec_trial(trial), lambda one: f"{target}: {one.place}"
        )
    return Audit(
        target,
        "data set",
        captions.words + (f"; {pairs.words}" if options.score else ""),
        faults,
        [],
    )


# --------------------------------------------------------------------------------------------------
# One step of any module, watched: in which number formats norms, softmax, rotary positions, time
# and loss really ran.
#
# A dispatch mode sees every operation after autocast, FSDP and the module's own casts, and hands it
# on as it is. Random state and buffers are put back afterwards, gradients are not touched. `where`
# is read from Python's own frames: no hooks.


FORMATS = {
    torch.bfloat16: "bf16",
    torch.float16: "fp16",
    torch.float32: "fp32",
    torch.float64: "fp64",
}
LOW = (torch.bfloat16, torch.float16)
BITS = {torch.bfloat16: 8, torch.float16: 11}
NORMS = {
    "native_layer_norm",
    "native_group_norm",
    "native_batch_norm",
    "_fused_rms_norm",
    "rsqrt",
    "cudnn_batch_norm",
}
SOFTMAXES = {"_softmax", "_log_softmax", "_safe_softmax"}
ANGLES = {"cos", "sin", "polar"}
CASTS = {"_to_copy", "to", "clone", "copy_"}
TIMES = ("t", "time", "timestep", "timesteps", "sigma", "sigmas", "noise_level")
TABLES = ("rope", "rotary", "freqs_cis", "freqs_cos", "freqs_sin", "cos_cached", "sin_cached")
# numbers of a tensor up to which it is still the time, not what the network made of it
CARRIED = 4096


class StepTracer(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Looks at every operation and changes none."""

    def __init__(
        self, names: Mapping[int, str], times: Sequence[Tensor], tables: Sequence[Tensor]
    ) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.names, self.count = names, 0
        self.operations: dict[tuple[Kind, str, str, str], int] = {}
        self.last_scalar: tuple[str, str, str] | None = None
        self._times = {id(one): ref(one) for one in times}
        self._tables = {id(one): ref(one) for one in tables}

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        result = function(*args, **(kwargs or {}))
        self.count += 1
        name = function.overloadpacket.__name__
        given = [
            one for one in tree_leaves(args) if isinstance(one, Tensor) and one.is_floating_point()
        ]
        if not given:
            return result
        made = [one for one in tree_leaves(result) if isinstance(one, Tensor)]
        if name in NORMS:
            self._note("norm", name, given[:1])
        elif name in SOFTMAXES:
            self._note("softmax", name, given[:1])
        self._follow_time(name, given, made)
        self._follow_table(name, given, made)
        if made and made[0].ndim == 0 and made[0].is_floating_point() and given[0].ndim > 0:
            self.last_scalar = (name, _formats(given), self._place())
        return result

    def _follow_time(self, name: str, given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        """The time, and what is only it in another form, until it is an angle's cosine or goes into
        a product."""
        mine = [one for one in given if self._is(one, self._times)]
        if not mine:
            return
        low = [one for one in (*mine, *made) if one.dtype in LOW]
        if low:
            self._note("time", name, low[:1])
        elif name not in CASTS:
            self._note("time", name, mine[:1])
        if name in ANGLES:
            return
        for one in made:
            if (
                one.is_floating_point()
                and one.numel() <= CARRIED
                and name not in ("mm", "addmm", "bmm", "linear")
            ):
                self._times[id(one)] = ref(one)

    def _follow_table(self, name: str, given: Sequence[Tensor], made: Sequence[Tensor]) -> None:
        """What is multiplied by a cosine or sine of positions; those of the time embedding stand in
        another place."""
        if name in ANGLES and not any(self._is(one, self._times) for one in given):
            self._note("rope", name, given[:1])
            self._tables.update({id(one): ref(one) for one in made})
        elif any(self._is(one, self._tables) for one in given):
            if name in ("mul", "mul_"):
                self._note("rope", name, given)
            elif name in (
                *CASTS,
                "view",
                "unsqueeze",
                "slice",
                "index",
                "index_select",
                "select",
                "expand",
                "repeat",
                "cat",
                "stack",
                "transpose",
                "permute",
                "alias",
                "detach",
            ):
                self._tables.update({id(one): ref(one) for one in made})

    @staticmethod
    def _is(tensor: Tensor, known: Mapping[int, Any]) -> bool:
        held = known.get(id(tensor))
        return held is not None and held() is tensor

    def _note(self, kind: Kind, name: str, given: Sequence[Tensor]) -> None:
        key = (kind, name, _formats(given), self._place())
        self.operations[key] = self.operations.get(key, 0) + 1

    def _place(self) -> str:
        """The innermost module of the user's whose code is running, and the line outside torch."""
        frame, line, module = sys._getframe(2), "", ""
        while frame is not None and not module:
            owner = frame.f_locals.get("self")
            file = frame.f_code.co_filename
            if not line and "/torch/" not in file and file != __file__:
                line = f"{Path(file).name}:{frame.f_lineno}"
            if isinstance(owner, nn.Module):
                module = self.names.get(id(owner), "")
            frame = frame.f_back  # type: ignore[assignment]
        return " at ".join(part for part in (module, line) if part) or "outside the module"


def probe_step(
    module: nn.Module,
    *args: Any,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: torch.optim.Optimizer | None = None,
    times: Sequence[Tensor] = (),
    **kwargs: Any,
) -> StepTrace:
    """Run `loss(module(*args, **kwargs))` once and say in which formats its sensitive operations
    ran.

    `times` are the tensors that hold the time; arguments called t, timestep or sigma are found by
    themselves. Wrap the call in your own torch.autocast if you train under one. Nothing is changed:
    no gradients, no statistics, no random state.
    """
    known = [value for name, value in kwargs.items() if name in TIMES and isinstance(value, Tensor)]
    tables = [
        value
        for name, value in module.named_buffers()
        if any(word in name.lower() for word in TABLES)
    ]
    names = {id(one): name or type(module).__name__ for name, one in module.named_modules()}
    tracer = StepTracer(names, [*times, *known, *_named_arguments(module, args)], tables)
    with _untouched(module), tracer:
        output = module(*args, **kwargs)
        if loss is not None:
            loss(output)
    operations = [RanOperation(*key, times=count) for key, count in tracer.operations.items()]
    if loss is not None and tracer.last_scalar is not None:
        operations.append(RanOperation("loss", *tracer.last_scalar))
    return StepTrace(operations, *_stored(module, optimizer), tracer.count)


def audit_step(
    module: nn.Module, *args: Any, evidence: OwnEvidence = NO_EVIDENCE, **kwargs: Any
) -> Audit:
    """`probe_step`, judged by the rules: the same faults as `fulcrum audit` tells."""
    trace = probe_step(module, *args, **kwargs)
    judge = Judge(evidence)
    faults = [judge.fault(rule, one, one.place) for rule in RULES for one in rule.in_step(trace)]
    name = type(module).__name__
    return Audit(
        name,
        "probed step",
        f"{trace.ran:,} operations, {len(trace.operations)} of them sensitive",
        stacked(faults),
        [],
    )


@contextmanager
def _untouched(module: nn.Module) -> Iterator[None]:
    """Buffers and random state as they were; nothing is written into gradients because nothing goes
    backward."""
    buffers = {name: value.detach().clone() for name, value in module.named_buffers()}
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    with torch.random.fork_rng(devices=list(devices)):
        try:
            yield
        finally:
            with torch.no_grad():
                for name, value in module.named_buffers():
                    if name in buffers and not torch.equal(value, buffers[name]):
                        value.copy_(buffers[name])


def _named_arguments(module: nn.Module, args: Sequence[Any]) -> list[Tensor]:
    """Positional arguments that the module's forward calls t, timestep or sigma."""
    from inspect import signature

    try:
        parameters = list(signature(module.forward).parameters)
    except (TypeError, ValueError):
        return []
    return [
        value
        for name, value in zip(parameters, args, strict=False)
        if name in TIMES and isinstance(value, Tensor)
    ]


def _stored(
    module: nn.Module, optimizer: torch.optim.Optimizer | None
) -> tuple[dict[str, str], dict[str, str], float]:
    """Formats of what is trained and of what the optimizer remembers, and the share of updates that
    would be lost."""
    trained = {
        name: _format(value.dtype)
        for name, value in module.named_parameters()
        if value.requires_grad
    }
    names = {id(value): name for name, value in module.named_parameters()}
    if optimizer is None:
        return trained, {}, 0.0
    state = {
        f"{names.get(id(parameter), '?')}.{moment}": _format(value.dtype)
        for parameter, moments in optimizer.state.items()
        for moment, value in moments.items()
        if isinstance(value, Tensor) and value.is_floating_point() and value.ndim > 0
    }
    lost, numbers = 0.0, 0
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            numbers += parameter.numel()
            lost += _lost(parameter.detach(), float(group.get("lr", 0.0))) * parameter.numel()
    return trained, state, lost / max(numbers, 1)


def _lost(weights: Tensor, rate: float) -> float:
    """Share of some of the weights that an update of `rate` cannot move."""
    if weights.dtype not in BITS or not rate:
        return 0.0
    from fulcrum.advice.rules_precision import lost_share

    sampled = weights.reshape(-1)[:: max(weights.numel() // 4096, 1)].float().cpu().numpy()
    return lost_share(sampled, rate, BITS[weights.dtype])


def _formats(tensors: Sequence[Tensor]) -> str:
    return " and ".join(sorted({_format(one.dtype) for one in tensors}))


def _format(dtype: torch.dtype) -> str:
    return FORMATS.get(dtype, str(dtype).removeprefix("torch."))
