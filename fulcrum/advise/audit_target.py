"""What an audit was asked to look at: told apart, read, handed to every rule; what the rules saw becomes faults."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from fulcrum.advise.audit_rule import AuditRule, Sightings
from fulcrum.advise.fault import Fault, stacked
from fulcrum.advise.ignored import Ignores, ignores_in
from fulcrum.advise.own_evidence import NO_EVIDENCE, OwnEvidence
from fulcrum.advise.rule_judge import Judge, chosen_rules, unreadable
from fulcrum.advise.subjects.config_family import ConfigFamily
from fulcrum.advise.subjects.config_file import SUFFIXES, ConfigFile, read_config
from fulcrum.advise.subjects.python_script import Script, read_script
from fulcrum.advise.subjects.training_project import TrainingProject, project_files, read_project
from fulcrum.files.paths import at_home
from fulcrum.files.user_code import parse_toml
from fulcrum.spec.errors import BadInput, nearest
from fulcrum.spec.progress import Tally

if TYPE_CHECKING:
    from fulcrum.advise.subjects.model_folder import ModelPart

PLAN_FIELDS = {"seeds", "arms", "stack", "interactions"}  # one of them beside a baseline makes a plan


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
            "ignored": [{"rule": rule, "place": place, "reason": reason} for rule, place, reason in self.ignored],
        }


class _Found(NamedTuple):
    """What was read of a target, before it is told."""

    kind: str
    looked_at: str
    faults: list[Fault]
    ignored: list[tuple[str, str, str]]


def audit(target: str, options: AuditOptions | None = None, evidence: OwnEvidence = NO_EVIDENCE) -> Audit:
    """Look at a path, a run's key or a phrase. Scripts are parsed and never run; nothing is changed."""
    options = options or AuditOptions()
    path = at_home(target)
    reader = _file_reader(path) if path.is_file() else _folder_reader(path) if path.is_dir() else _named
    judge = Judge(evidence, chosen_rules(options.only, options.skip))
    reading = reader(target, path, options, judge)
    if path.is_dir() and reader is not _project:
        reading = _with_scripts(reading, path, judge)
    return Audit(target, reading.kind, reading.looked_at, stacked(reading.faults), reading.ignored)


def _file_reader(path: Path) -> Callable[[str, Path, AuditOptions, Judge], _Found]:
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
        raise BadInput(f"{path} is a pickle, which runs code when it is opened", "convert it to safetensors first")
    raise BadInput(
        f"{path} is nothing that an audit can read",
        "expected .py, .yaml, .json, .toml, .safetensors, .tar, .parquet, or a folder",
    )


def _folder_reader(path: Path) -> Callable[[str, Path, AuditOptions, Judge], _Found]:
    from fulcrum.advise.subjects.model_folder import is_model_folder

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
    """Data rather than code: shards, tables, or pictures; beside scripts only pictures that have captions, for code may
    come with a figure."""
    from fulcrum.data.readers.pictures import SUFFIXES as PICTURES

    files = {file.name: file for file in path.iterdir() if file.is_file()}
    pictures = [file for file in files.values() if file.suffix.lower() in PICTURES]
    if any(file.suffix.lower() == ".py" for file in files.values()):
        tables = (".tar", ".parquet", ".csv", ".jsonl")
        captioned = any(f"{file.stem}{suffix}" in files for file in pictures for suffix in (".txt", ".json"))
        return captioned or any(file.suffix.lower() in tables for file in files.values())
    return bool(pictures) or any(file.suffix.lower() in (".tar", ".parquet") for file in files.values())


def _is_plan(path: Path) -> bool:
    fields = set(_toml(path))
    return "baseline" in fields and bool(PLAN_FIELDS & fields)


def _toml(path: Path) -> dict[str, Any]:
    """What a TOML file holds; nothing where it cannot be read, which its reader will say."""
    try:
        return parse_toml(path.read_text(encoding="utf-8-sig"))
    except (OSError, ValueError, RecursionError):
        return {}


def _script(target: str, path: Path, options: AuditOptions, judge: Judge) -> _Found:
    script = read_script(path)
    faults, ignored = _of_script(script, target, judge)
    return _Found("script", f"{len(script.source.splitlines()):,} lines, parsed and not run", faults, ignored)


def _with_scripts(reading: _Found, path: Path, judge: Judge) -> _Found:
    """The scripts that lie beside weights or data are looked at too; links, and what lies deeper, are not."""
    scripts, faults, ignored = sorted(path.glob("*.py")), [*reading.faults], [*reading.ignored]
    if not scripts:
        return reading
    for file in scripts:
        try:
            if file.is_symlink():
                raise BadInput("it is a link and was not followed", "name the file itself")
            _extend(faults, ignored, _of_script(read_script(file), file.name, judge))
        except BadInput as error:
            faults.append(unreadable(file.name, str(error)))
    count = "1 script" if len(scripts) == 1 else f"{len(scripts)} scripts"
    return _Found(f"{reading.kind} and {count}", reading.looked_at, faults, ignored)


def _of_script(script: Script, name: str, judge: Judge) -> tuple[list[Fault], list[tuple[str, str, str]]]:
    faults = judge.faults(lambda rule: rule.in_script(script), lambda one: f"{name}:{one.place}")
    return ignores_in(script.source, name).applied(faults)


def _config(target: str, path: Path, options: AuditOptions, judge: Judge) -> _Found:
    config = read_config(path)
    faults, ignored = _of_config(config, target, judge)
    return _Found("configuration", f"{len(config.entries):,} values", faults, ignored)


def _of_config(config: ConfigFile, name: str, judge: Judge) -> tuple[list[Fault], list[tuple[str, str, str]]]:
    faults = judge.faults(lambda rule: rule.in_config(config), lambda one: f"{name}:{one.place}")
    return ignores_in(config.source, name).applied(faults)


def _project(target: str, path: Path, options: AuditOptions, judge: Judge) -> _Found:
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
    together += judge.faults(lambda rule: rule.in_project(project), lambda one: one.place.removeprefix(f"{path}/"))
    sources = [(one.source, one.path) for one in project.scripts] + [(one.source, one.path) for one in project.configs]
    comments = Ignores.joined(ignores_in(source, _below(file, path)) for source, file in sources)
    _extend(faults, ignored, comments.applied(together, again=True))
    faults += [unreadable(_below(one.path, path), one.why) for one in project.unread]
    return _Found("project", _counted(project, len(plans)), faults, ignored)


def _of_family(family: ConfigFamily, folder: Path, judge: Judge) -> list[Fault]:
    return judge.faults(lambda rule: rule.in_family(family), lambda one: one.place.removeprefix(f"{folder}/"))


def _counted(project: TrainingProject, plans: int) -> str:
    arms = sum(len(family.arms) for family in project.families)
    words = [f"{len(project.scripts)} scripts", f"{len(project.configs)} configurations"]
    words += [f"{plans} plans"] if plans else []
    several = "s" if len(project.families) > 1 else ""
    words += [f"{arms} arms held against {len(project.families)} baseline{several}"] if arms else []
    words += [f"{project.orphans} files inherit what was not found"] if project.orphans else []
    return ", ".join(words + ([f"{len(project.unread)} files could not be read"] if project.unread else []))


def _extend(
    faults: list[Fault], ignored: list[tuple[str, str, str]], more: tuple[list[Fault], list[tuple[str, str, str]]]
) -> None:
    faults += more[0]
    ignored += more[1]


def _below(path: Path, folder: Path) -> str:
    return path.relative_to(folder).as_posix() if path.is_relative_to(folder) else str(path)


def _plan(target: str, path: Path, options: AuditOptions, judge: Judge) -> _Found:
    from fulcrum.advise.subjects.planned_study import read_study
    from fulcrum.levers.catalog import with_files
    from fulcrum.studies.plan import Plan
    from fulcrum.studies.plan_file import from_person

    fields = _toml(path)
    unknown = [name for name in fields if name not in Plan.model_fields]
    plan = from_person({name: value for name, value in fields.items() if name not in unknown}, target)
    study = read_study(plan, with_files(options.files)[0])
    faults = [
        unreadable(f"{target}: {name}", f"a plan has no '{name}'; {nearest(name, Plan.model_fields)}") for name in unknown
    ]
    faults += judge.faults(lambda rule: rule.in_plan(study), lambda one: f"{target}: {one.place}")
    if study.arms:
        faults += judge.faults(lambda rule: rule.in_run(study.arms[0].run), lambda one: f"{target}: baseline: {one.place}")
    return _Found("plan", f"{len(study.arms)} arms x {len(study.plan.seeds)} seeds", faults, [])


def _named(target: str, path: Path, options: AuditOptions, judge: Judge) -> _Found:
    """A run's key, or a phrase."""
    if re.fullmatch(r"[0-9a-f]{4,64}", target) and options.out.is_dir() and any(options.out.glob(f"{target}*")):
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
            f"'{target}' is a lever, not a run", f'"spark + {target}" is one; its laws: fulcrum levers check {target}'
        )
    phrase = parse(target, known, options.settings)
    return _Found("phrase", "the whole description of the run", _of_run(phrase.run, target, judge), [])


def _run(target: str, path: Path, options: AuditOptions, judge: Judge) -> _Found:
    from fulcrum.levers.catalog import with_files
    from fulcrum.spec.edit import read
    from fulcrum.training.run_folder import RunFolder
    from fulcrum.training.trained_run import find_run

    folder = find_run(target, options.out)
    run = read(RunFolder(folder).about()["run"], with_files(options.files)[0].fillers)
    return _Found("run", f"the description of {folder.name}", _of_run(run, target, judge), [])


def _of_run(run: Any, name: str, judge: Judge) -> list[Fault]:
    return judge.faults(lambda rule: rule.in_run(run), lambda one: f"{name}: {one.place}")


def _checkpoint(target: str, path: Path, options: AuditOptions, judge: Judge) -> _Found:
    from fulcrum.advise.subjects.stored_tensors import READ, read_tensors_of

    tensors = read_tensors_of(path, options.values, options.rate)
    faults = judge.faults(lambda rule: rule.in_tensors(tensors), lambda one: f"{target}: {one.place}")
    faults += [unreadable(str(file), why) for file, why in tensors.unread]
    numbers = sum(one.numbers for one in tensors.tensors)
    formats = ", ".join(f"{count / max(numbers, 1):.0%} {name}" for name, count in tensors.formats.most_common())
    unread = sorted(tensors.formats.keys() - READ.keys())
    apart = f", none of {', '.join(unread)}" if unread else ""
    how = f"{options.values:,} values of each{apart}" if options.values else "headers only; values: --values 4096"
    return _Found("checkpoint", f"{len(tensors.tensors):,} tensors, {numbers:,} numbers ({formats}); {how}", faults, [])


def _model(target: str, path: Path, options: AuditOptions, judge: Judge) -> _Found:
    from fulcrum.advise.subjects.model_folder import read_model_folder

    folder = read_model_folder(path, options.values, options.rate)
    faults = judge.faults(lambda rule: rule.in_folder(folder), lambda one: f"{target}: {one.place}")
    for part in folder.parts:
        faults += _of_part(part, target, judge)
    if not folder.parts:
        raise BadInput(f"{path} names no part that is there", "expected a folder as diffusers writes it")
    kinds = ", ".join(f"{part.name or 'model'} ({part.declared or part.own or 'no class named'})" for part in folder.parts)
    return _Found("model folder", f"{folder.pipeline or 'one model'}: {kinds}", faults, [])


def _of_part(part: "ModelPart", target: str, judge: Judge) -> list[Fault]:
    def look(rule: AuditRule) -> Sightings:
        own = "in_folder" in vars(type(rule))  # then it knows itself in which parts its fault is one
        return () if own else rule.in_tensors(part.tensors)

    faults = judge.faults(look, lambda one: f"{target}/{part.name}: {one.place}")
    return faults + [unreadable(str(file), why) for file, why in part.tensors.unread]


def _data(target: str, path: Path, options: AuditOptions, judge: Judge) -> _Found:
    from fulcrum.advise.subjects.caption_set import read_captions

    captions = read_captions(target, options.tokens, say=options.say)
    faults = judge.faults(
        lambda rule: rule.in_captions(captions),
        lambda one: target if one.place == captions.path else f"{target}: {one.place}",
    )
    if options.score:
        from fulcrum.advise.subjects.pair_trial import try_pairs

        pairs = try_pairs(target, options.score, options.caption)
        faults += judge.faults(lambda rule: rule.in_pairs(pairs), lambda one: f"{target}: {one.place}")
    if options.codec:
        from fulcrum.advise.subjects.codec_trial import try_codec

        trial = try_codec(target, options.codec)
        faults += judge.faults(lambda rule: rule.in_codec_trial(trial), lambda one: f"{target}: {one.place}")
    return _Found("data set", captions.words + (f"; {pairs.words}" if options.score else ""), faults, [])
