"""Audit rules about comparisons: arms, seeds, outputs, configurations."""

import ast
import re
from pathlib import Path
from typing import TYPE_CHECKING

from fulcrum.advice.configs import (
    INHERITS,
    OUTPUTS,
    SUFFIXES,
    ConfigFamily,
    ConfigFile,
    names_in,
    swept_names,
)
from fulcrum.advice.rule import AuditRule, Sighting, Sightings
from fulcrum.advice.scripts import (
    Script,
    TrainingProject,
    arguments,
    called,
    dotted,
    is_constant,
    keyword,
    number,
    source_of,
    text_of,
)

if TYPE_CHECKING:
    from fulcrum.advice.steps import PlannedStudy


# --------------------------------------------------------------------------------------------------
# Rule: an arm that is the baseline, or another arm.


class ArmChangesNothing(AuditRule):
    id = "arm-changes-nothing"
    family = "design"
    severity = "error"
    gain = 0.8
    why = "the same run twice shows the noise between runs, and is told as an effect"
    size = "an ablation of nothing"
    source = "docs/published.md, A10"
    fix = "leave it out, or make it differ"

    def in_family(self, family: ConfigFamily) -> Sightings:
        for place, arm in enumerate(family.arms):
            moved = [change for change in arm.changes if not change.path.endswith("seed")]
            same = [other.name for other in family.arms[:place] if other.changes == arm.changes]
            seeds = [change for change in arm.changes if change.path.endswith("seed")]
            if not moved and not seeds:
                yield Sighting(
                    arm.at(), "the arm differs from the baseline in nothing but names and folders"
                )
            elif same:
                yield Sighting(arm.at(), f"the arm is the same as {same[0]}")

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        for name, message, hint in study.refused:
            if "changes nothing" in message or "the same run" in message:
                yield Sighting(name, message, hint)


# --------------------------------------------------------------------------------------------------
# Rule: an arm changes more than one decision.


class ArmIsCompound(AuditRule):
    id = "arm-is-compound"
    family = "design"
    gain = 0.6
    effort = "rework"
    why = "the effect belongs to all changes together, and to none of them"
    size = "the published REPA-E, LPIPS and TREAD arms are such"
    source = "docs/published.md, A7"
    published = "A7"
    fix = 'one arm for each change, and one for all of them: interactions = [["a", "b"]] in a plan'

    def in_family(self, family: ConfigFamily) -> Sightings:
        for arm in family.arms:
            decisions: dict[str, str] = {}
            for change in arm.changes:
                decisions.setdefault(change.decision, change.path)
            decisions.pop("seed", None)
            if len(decisions) > 1:
                what = ", ".join(f"{name} ({path})" for name, path in decisions.items())
                yield Sighting(arm.at(), f"the arm changes {len(decisions)} decisions: {what}")

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        from fulcrum.studies.arms import baseline_of, moves_optimizer

        # what others are held against is not what the study asks about
        controls = {arm.against for arm in study.arms}
        for arm in (
            study.arms
            if not study.plan.interactions and study.plan.design == "one_at_a_time"
            else ()
        ):
            carried = [label for label in arm.labels if moves_optimizer(label)]
            paths = list(dict.fromkeys(change.path for change in arm.changes))
            # one change from its control
            single = len(paths) == 1 and not baseline_of(arm, study.arms).is_baseline
            if arm.compound and not carried and not single and arm.name not in controls:
                yield Sighting(arm.name, f"the arm changes {', '.join(paths)}")


# --------------------------------------------------------------------------------------------------
# Rule: an arm that cannot be run.


class ArmRefused(AuditRule):
    id = "arm-refused"
    family = "design"
    severity = "error"
    gain = 1.0
    why = "the study would stop before its first cell"
    size = "nothing is learned"
    fix = "correct the arm, or leave it out"

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        for name, message, hint in study.refused:
            if "changes nothing" not in message and "the same run" not in message:
                yield Sighting(name or "plan", message, hint)


# --------------------------------------------------------------------------------------------------
# Rule: a switch that is written as text.


class BooleanAsText(AuditRule):
    id = "boolean-as-text"
    family = "design"
    gain = 0.1
    why = 'the text "False" is true in Python: what is meant to be off is on'
    size = "a setting that is the opposite of what it says; no number published"
    source = "SimpleTuner issue 1139"
    fix = (
        "write false without quotes; in argparse use action=argparse.BooleanOptionalAction, not"
        " type=bool"
    )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.entries:
            if isinstance(entry.value, str) and entry.value in ("False", "false"):
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value!r} is text",
                    f"write {config.setting(entry, False)}",
                )

    def in_script(self, script: Script) -> Sightings:
        for call in script.named("add_argument"):
            kind = keyword(call, "type")
            if kind is not None and dotted(kind) == "bool":
                yield Sighting(script.at(call), "type=bool makes every text true, 'False' as well")


# --------------------------------------------------------------------------------------------------
# Rule: one arm encodes while it trains, the others read from a cache.


WORDS = re.compile(r"cache|precomput|online|on_the_fly|preencod|latents_from")


class CachingUnequal(AuditRule):
    id = "caching-unequal"
    family = "design"
    gain = 0.3
    effort = "edit"
    why = (
        "an arm that encodes text or pictures in every step is slower for that, whatever its lever"
        " does"
    )
    size = "the published FLUX.2 arm has 1.79 batches a second against 3.95, by its encoding"
    source = "docs/published.md, A11"
    published = "A11"
    fix = "cache for all arms or for none; tell throughput with encoding counted"

    def in_family(self, family: ConfigFamily) -> Sightings:
        for arm, change in family.changes:
            texts = isinstance(change.after, str) or isinstance(change.before, str)
            if WORDS.search(change.path) and not texts:
                seen = f"the arm encodes otherwise than the baseline: {change}"
                yield Sighting(arm.at(change.path), seen)


# --------------------------------------------------------------------------------------------------
# Rule: a configuration that is named by default does not exist.


class DefaultNotThere(AuditRule):
    id = "default-not-there"
    family = "design"
    severity = "error"
    gain = 1.0
    why = "the first command that a reader tries fails"
    size = "the training cannot run as it is written"
    source = "docs/published.md, A13"
    published = "A13"
    fix = "name a file that exists"

    def in_script(self, script: Script) -> Sightings:
        for option in script.options:
            value = option.default
            if (
                isinstance(value, str)
                and value.lower().endswith(SUFFIXES)
                and "config" in option.name
                and not _exists(script.path, value)
            ):
                yield Sighting(
                    script.at(option.node),
                    f"--{option.name} is {value!r} by default, and there is no such file",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        for field in INHERITS:
            given = config.plain.get(field)
            for one in given if isinstance(given, list) else [given]:
                missing = _missing(config.path, field, one)
                if missing:
                    line = next(
                        (entry.line for entry in config.entries if entry.path.startswith(field)), 1
                    )
                    yield Sighting(
                        str(line), f"{field} names '{missing}', and there is no such file"
                    )


def _missing(home: Path, field: str, one: object) -> str:
    """Hydra writes `- group: name` for group/name.yaml and `- name` for name.yaml; others write a
    path."""
    if isinstance(one, dict) and field == "defaults" and len(one) == 1:
        group, name = next(iter(one.items()))
        group = (
            str(group)
            .removeprefix("override ")
            .removeprefix("optional ")
            .partition("@")[0]
            .lstrip("/")
        )
        if (
            not isinstance(name, str)
            or name in ("null", "_self_")
            or "${" in name
            or not (home.parent / group).is_dir()
        ):
            return ""  # the group may come from a package
        return "" if _exists(home, f"{group}/{name}") else f"{group}/{name}"
    if not isinstance(one, str) or one == "_self_" or "${" in one or "@" in one:
        return ""
    is_path = one.lower().endswith(SUFFIXES) or field == "defaults"
    return one if is_path and not _exists(home, one) else ""


def _exists(home: Path, name: str) -> bool:
    """Beside it or above it; `/base` is a file of the root in Hydra's defaults, and elsewhere one
    of the whole disk."""
    places = (home.parent, *home.parent.parents[:3])
    names = (name, name.lstrip("/"))
    return any(
        (place / f"{one}{suffix}").is_file()
        for one in names
        for place in places
        for suffix in ("", *SUFFIXES)
    )


# --------------------------------------------------------------------------------------------------
# Rule: two ways to do one thing are compared at different doses.


DOSES = re.compile(
    r"(^|[._])(drop|ratio|rate|mask_ratio|drop_ratio|selection_ratio|keep|share|weight|coeff|"
    r"dose)$|(drop|mask|keep)\w*(ratio|rate)$"
)
KINDS = {"routing": r"tread|sprint|rout|mask"}


class DosesUnequal(AuditRule):
    id = "doses-unequal"
    family = "design"
    severity = "note"
    gain = 0.2
    effort = "edit"
    why = "one arm does more of the same: which method is better cannot be read from them"
    size = "TREAD at 50 % against SPRINT at 75 % in the published study"
    source = "docs/published.md, A12"
    published = "A12"
    lever = "sprint"
    fix = "give both the same share of tokens, or compare each with the baseline only"

    def in_family(self, family: ConfigFamily) -> Sightings:
        for kind, pattern in KINDS.items():
            doses = [
                (arm, change)
                for arm, change in family.changes
                if re.search(pattern, change.path)
                and DOSES.search(change.path)
                and isinstance(change.after, int | float)
            ]
            for place, (arm, change) in enumerate(doses):
                for other, its in doses[place + 1 :]:
                    if (
                        other is not arm
                        and its.after != change.after
                        and _method(its.path) != _method(change.path)
                    ):
                        yield Sighting(
                            other.at(its.path),
                            f"{kind}: {arm.name} has {change.path} = {change.after}, {other.name}"
                            f" has {its.path} = {its.after}",
                        )

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        from fulcrum.studies.arms import unequal

        for found in unequal(study.arms):
            yield Sighting("arms", found.text)


def _method(path: str) -> str:
    return path.rpartition(".")[0]


# --------------------------------------------------------------------------------------------------
# Rule: a distributed sampler that is never told the epoch.


class EpochNotSet(AuditRule):
    id = "epoch-not-set"
    family = "design"
    gain = 0.05
    why = (
        "DistributedSampler shuffles by seed and epoch: without set_epoch every epoch has the order"
        " of the first"
    )
    size = "no number published"
    source = "torch documentation"
    fix = "sampler.set_epoch(epoch) at the top of every epoch"

    def in_script(self, script: Script) -> Sightings:
        if not script.trains or script.mentions("set_epoch") or script.mentions("^accelerator$"):
            return
        for call in script.named("DistributedSampler"):
            if not is_constant(keyword(call, "shuffle"), False):
                yield Sighting(script.at(call), f"{source_of(call)}, and set_epoch is never called")


# --------------------------------------------------------------------------------------------------
# Rule: errors of single samples are swallowed.


READERS = (
    "__getitem__",
    "__iter__",
    "collate",
    "collate_fn",
    "load_sample",
    "decode",
    "preprocess",
    "read_sample",
    "load_image",
)
HANDLERS = ("ignore_and_continue", "warn_and_continue")
COUNTS = ("+= 1", "append", "quarantine", "Counter", ".inc(", "raise", ".add(")


class ErrorsSwallowed(AuditRule):
    id = "errors-swallowed"
    family = "design"
    gain = 0.1
    effort = "edit"
    why = (
        "the batch shrinks or repeats silently: how many pictures were trained on, and which,"
        " nobody knows"
    )
    size = "a ledger that is wrong by as many samples as failed"
    source = "docs/published.md, A19"
    published = "A19"
    fix = (
        "count and name what fails, and stop above a share; or check the data once before: fulcrum"
        " data import --bad quarantine"
    )

    def in_script(self, script: Script) -> Sightings:
        for node in script.nodes:
            if isinstance(node, ast.ExceptHandler) and _reads(script, node) and _silent(node):
                what = ast.unparse(node.type) if node.type else "everything"
                yield Sighting(
                    script.at(node), f"`except {what}` passes over a sample without counting it"
                )
            elif (
                isinstance(node, ast.Name | ast.Attribute)
                and dotted(node).rpartition(".")[2] in HANDLERS
                and isinstance(node.ctx, ast.Load)
            ):
                yield Sighting(script.at(node), f"{dotted(node)} goes on after any error")

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(
            r"(data|dataset|loader|shard|reader)\w*.*(on_error|handler|skip_errors|ignore_errors|"
            r"skip_bad\w*|ignore_bad\w*)$"
        ):
            if entry.on or entry.text.rpartition(".")[2] in (
                "skip",
                "ignore",
                "continue",
                *HANDLERS,
            ):
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}")


def _reads(script: Script, node: ast.AST) -> bool:
    home = script.function(node)
    return home is not None and (home.name in READERS or "collate" in home.name)


def _silent(node: ast.ExceptHandler) -> bool:
    """Broad, it gives the sample up (returns or goes on), and it neither raises nor counts. `pass`
    before another try of the same sample is none."""
    broad = node.type is None or dotted(node.type) in (
        "Exception",
        "BaseException",
        "OSError",
        "IOError",
    )
    gives_up = any(
        isinstance(part, ast.Return | ast.Continue) for one in node.body for part in ast.walk(one)
    )
    text = " ".join(ast.unparse(one) for one in node.body)
    return broad and gives_up and not any(sign in text for sign in COUNTS)


# --------------------------------------------------------------------------------------------------
# Rule: an arm with another optimizer moves one of its settings as well.


KIND = re.compile(r"(^|[._])(name|type|kind|class|_target_|optimizer|optimizer_type|optim)$")
SHARED = re.compile(
    r"(^|[._])(adam_)?(eps|epsilon|betas?|beta1|beta2|weight_decay|clip\w*|max_grad_norm)$"
)


class OptimizerArmMovesMore(AuditRule):
    id = "optimizer-arm-moves-more"
    family = "design"
    gain = 0.4
    why = "the new optimizer is credited with what its eps, betas or weight decay do"
    size = "the published Muon arm (FID 18.2 to 15.6) also moved eps from 1e-15 to 1e-8"
    source = "docs/published.md, A8"
    published = "A8"
    lever = "muon"
    fix = "keep the settings that both have, and give the learning rate of each the same sweep"

    def in_family(self, family: ConfigFamily) -> Sightings:
        for arm in family.arms:
            own = [change for change in arm.changes if change.decision == "optimizer"]
            kinds = [
                change
                for change in own
                if KIND.search(change.path) or re.search(r"muon", change.path)
            ]
            moved = [
                change
                for change in own
                if SHARED.search(change.path)
                and change.before is not None
                and change.after is not None
            ]
            if kinds:
                for change in moved:
                    yield Sighting(
                        arm.at(change.path),
                        f"the arm changes {kinds[0].path} and also {change}",
                    )

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        from fulcrum.studies.arms import moves_optimizer

        for arm in study.arms:
            for label in arm.labels:
                if moves_optimizer(label):
                    yield Sighting(arm.name, f"the arm {label.text}")


# --------------------------------------------------------------------------------------------------
# Rule: arms write into one folder.


LOGS = re.compile(r"(^|[._])(logs?|logging)($|[._])")


class OutputsShared(AuditRule):
    id = "outputs-shared"
    family = "design"
    severity = "error"
    gain = 1.0
    why = (
        "arms or jobs of a sweep that write into one folder overwrite each other's checkpoints, and"
        " go on from them"
    )
    size = "18 of 29 published arms destroy the baseline"
    source = "docs/published.md, A5"
    published = "A5"
    fix = "put the arm's name into the folder: save_folder: out/${run_name}, and forbid overwriting"

    def in_family(self, family: ConfigFamily) -> Sightings:
        former = {
            path: value
            for path, value in family.baseline.values.items()
            if OUTPUTS.search(path) and isinstance(value, str)
        }
        for arm in family.arms:
            for path, value in former.items():
                shared = arm.values.get(path) == value and "{" not in value
                if shared and not LOGS.search(path):
                    overwrites = any(
                        "overwrite" in name and str(on).lower() == "true"
                        for name, on in arm.values.items()
                    )
                    also = ", and overwriting is allowed" if overwrites else ""
                    yield Sighting(
                        arm.at(path),
                        f"the arm writes to {path} = {value!r}, as the baseline does{also}",
                    )

    def in_config(self, config: ConfigFile) -> Sightings:
        """A sweep: one file, many jobs. Its folder must name, directly or through other values,
        what tells jobs apart."""
        swept = swept_names(config)
        for entry in config.find(OUTPUTS.pattern) if swept else ():
            names = names_in(config, entry)
            if names is None or entry.path.startswith("hydra.") or LOGS.search(entry.path):
                continue
            missing = [
                one
                for one in swept
                if not any(name == one or name.startswith(f"{one}.") for name in names)
            ]
            if missing:
                resume = next((one for one in config.find(r"resume") if not one.off), None)
                also = (
                    f"; {resume.path} = {resume.value} goes on from another job's weights"
                    if resume
                    else ""
                )
                yield Sighting(
                    config.at(entry),
                    f"jobs of the sweep that differ in {', '.join(missing)} write to {entry.path} ="
                    f" {entry.value!r}{also}",
                    "name what is swept in the folder:"
                    f" {entry.value}/{'/'.join('${' + one + '}' for one in missing)}",
                )


# --------------------------------------------------------------------------------------------------
# Rule: a plan that sees only very large differences.


LARGE = 2.4  # times the scatter of the paired differences; six pairs and three arms see 2.1


class PowerLow(AuditRule):
    id = "power-low"
    family = "design"
    severity = "note"
    gain = 0.2
    effort = "rework"
    why = (
        "arms are judged together: with many of them and few seeds only very large differences get"
        " a verdict"
    )
    size = "the smallest difference that is seen in four studies of five is told with the fault"
    source = "docs/statistics.md, simulated through the rule that verdicts follow"
    fix = (
        "fewer arms, more seeds, or seeds only where they are needed: seeds = {first = 8, step = 4,"
        " most = 16}"
    )

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        from fulcrum.judge.power import detectable
        from fulcrum.judge.statistics import pairs_needed

        plan, arms = study.plan, sum(not arm.is_baseline for arm in study.arms)
        if plan.design != "one_at_a_time" or not arms or len(plan.seeds) < pairs_needed(plan.alpha):
            return
        seen = detectable(len(plan.seeds), arms, alpha=plan.alpha)
        if seen is None or seen > LARGE:
            least = (
                "no difference"
                if seen is None
                else f"only a difference of {seen:.1f} times the scatter of the pairs"
            )
            yield Sighting(
                "seeds",
                f"with {len(plan.seeds)} pairs and {arms} arms {least} gets its verdict in four"
                " studies of five",
            )


# --------------------------------------------------------------------------------------------------
# Rule: the seed of the run does not reach the order of the data.


SEEDS = ("manual_seed", "set_seed", "seed_everything", "manual_seed_all")


class SeedNotInOrder(AuditRule):
    id = "seed-not-in-order"
    family = "design"
    gain = 0.2
    why = (
        "repeats that see the same pictures in the same order are not independent: the scatter"
        " between them is too small, and every difference looks real"
    )
    size = "intervals that are too narrow; by how much is not known"
    source = "docs/published.md, A4"
    published = "A4"
    fix = (
        "DistributedSampler(..., seed=args.seed), shuffle_seed: ${seed}, "
        "DataLoader(generator=torch.Generator().manual_seed(args.seed))"
    )

    def in_script(self, script: Script) -> Sightings:
        takes_seed = (
            any(option.name == "seed" for option in script.options) or "seed" in script.words
        )
        if not takes_seed or not (script.trains or script.named("DataLoader")):
            return
        for call in script.named("DistributedSampler"):
            seed = keyword(call, "seed")
            if (seed is None or number(seed) is not None) and not is_constant(
                keyword(call, "shuffle"), False
            ):
                yield Sighting(
                    script.at(call),
                    f"{source_of(call)} orders by {'seed 0' if seed is None else 'a fixed seed'},"
                    " whatever the run's seed is",
                    "add seed=args.seed",
                )
        for call in script.named("DataLoader"):
            generator = keyword(call, "generator")
            made = (
                [
                    part
                    for part in script.meanings(generator, 2)
                    if isinstance(part, ast.Call) and dotted(part.func).endswith("manual_seed")
                ]
                if generator is not None
                else []
            )
            if made and made[0].args and number(made[0].args[0]) is not None:
                yield Sighting(
                    script.at(call),
                    f"the order comes from {source_of(made[0])}, whatever the run's seed is",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        run = config.first(r"^(train\.|training\.|trainer\.)?(global_|random_)?seed$")
        for entry in config.find(
            r"(shuffle_seed|sampler_seed|data_seed|(data|dataset|loader|dataloader|"
            r"sampler)\w*\.(\w+\.)*seed)$"
        ):
            if run and entry.number is not None and not re.search(r"\$\{", str(entry.value)):
                yield Sighting(
                    config.at(entry),
                    f"{run.path} = {run.value}, and {entry.path} is fixed at {entry.value}",
                    f"set {entry.leaf} to ${{{run.path}}}",
                )


# --------------------------------------------------------------------------------------------------
# Rule: arms that are trained under other seeds than the baseline.


class SeedsUnpaired(AuditRule):
    id = "seeds-unpaired"
    family = "design"
    gain = 0.3
    why = (
        "with the same seeds an arm and its baseline share initial weights, data order and noise,"
        " and their difference scatters less"
    )
    size = "the scatter of a difference falls by the root of one minus the correlation"
    source = "docs/statistics.md"
    fix = "train every arm under the baseline's seeds"

    def in_family(self, family: ConfigFamily) -> Sightings:
        for arm in family.arms:
            moved = [
                change
                for change in arm.changes
                if change.path.rpartition(".")[2] in ("seed", "seeds", "random_seed", "global_seed")
            ]
            others = [change for change in arm.changes if change not in moved]
            if moved and others:
                yield Sighting(
                    arm.at(moved[0].path), f"the arm changes its seed as well: {moved[0]}"
                )


# --------------------------------------------------------------------------------------------------
# Rule: a setting that nothing reads.


SINKS = (
    "vars",
    "print",
    "repr",
    "str",
    "dict",
    "asdict",
    "dumps",
    "dump",
    "info",
    "pprint",
    "init_trackers",
    "init",
    "update",
    "safe_dump",
    "len",
    "getattr",
    "hasattr",
    "setattr",
    "Namespace",
)


class SettingReadByNobody(AuditRule):
    id = "setting-read-by-nobody"
    family = "design"
    severity = "error"
    also = "warning of an option that one script declares and does not read"
    gain = 0.8
    why = (
        "an arm that sets what nobody reads is the baseline, and its 'effect' is the noise between"
        " two equal runs"
    )
    size = "the published BF16 arm is such"
    source = "docs/published.md, A10"
    published = "A10"
    fix = "read the setting, or remove it; refuse unknown names when a configuration is loaded"

    def in_script(self, script: Script) -> Sightings:
        """Options that are declared and never read, where the script alone can know."""
        holder = _holder(script)
        if not holder or _leaves(script, holder):
            return
        read = {
            node.attr
            for node in script.nodes
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load)
        }
        texts = set(script.texts)
        flags = {flag for option in script.options for flag in (option.name, f"--{option.name}")}
        for option in script.options:
            used_as_text = any(
                option.name in text and text not in flags and not re.search(r"\s", text)
                for text in texts
            )
            if option.name not in read and not used_as_text and not is_help(option.node):
                yield Sighting(
                    script.at(option.node),
                    f"--{option.name} is declared, and nothing reads {holder}.{option.name}",
                    severity="warning",
                )

    def in_project(self, project: TrainingProject) -> Sightings:
        """What an arm changes, and no script of the project ever names."""
        if not project.scripts:
            return
        known = {word for script in project.scripts for word in script.words}
        known |= {
            part.lower()
            for script in project.scripts
            for text in script.texts
            for part in re.split(r"[^\w]+", text)
        }
        if any(_passes_whole(script) for script in project.scripts):
            return
        handed = {path for script in project.scripts for path in _read_paths(script)}
        for family in project.families:
            for arm, change in family.changes:
                parts = change.path.split(".")
                leaf = parts[-1]
                above = {
                    ".".join(parts[first:last])
                    for last in range(len(parts))
                    for first in range(last)
                }
                if leaf not in known and not leaf.isdigit() and not above & handed:
                    yield Sighting(
                        arm.at(change.path),
                        f"the arm sets {change.path} = {change.after!r}, and no script names"
                        f" '{leaf}'",
                    )


def is_help(call: ast.Call) -> bool:
    return isinstance(action := keyword(call, "action"), ast.Constant) and action.value in (
        "version",
        "help",
    )


def _holder(script: Script) -> str:
    """The name that the options are kept under: args."""
    parsers = {"parse_args", "parse_known_args"}
    parsers |= {  # a function of the script that returns them, whatever it is called
        home.name
        for node in script.nodes
        if isinstance(node, ast.Return)
        and _parsed(node.value, parsers)
        and (home := script.function(node)) is not None
    }
    return next(
        (
            name
            for name, values in script.assignments.items()
            if any(_parsed(one, parsers) for one in values)
        ),
        "",
    )


def _parsed(value: ast.AST | None, parsers: set[str]) -> bool:
    return isinstance(value, ast.Call) and called(value) in parsers


def _leaves(script: Script, holder: str) -> bool:
    """Are the options handed to code that is not in this file, by a call or by a return?"""
    own = {node.name for node in script.nodes if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    within = {dotted(call.func) for call in script.calls}
    for node in script.nodes:
        if (
            isinstance(node, ast.Return)
            and node.value is not None
            and holder in ast.unparse(node.value).split(".")
        ):
            home = script.function(node)
            if home is None or home.name not in within:
                return True
    for call in script.calls:
        end = called(call)
        given = arguments(call)
        handed = any(isinstance(one, ast.Name) and one.id in (holder, "args") for one in given)
        spread = any(one.arg is None and "vars(" in ast.unparse(one.value) for one in call.keywords)
        if spread or (handed and end not in own and end not in SINKS):
            return True
    return False


def _passes_whole(script: Script) -> bool:
    """Does it spread a whole table into calls (`**config`), or hand it to a framework? Then names
    may be read elsewhere. A part of it (`instantiate(config.model)`) is that part alone."""
    spread = [one.value for call in script.calls for one in call.keywords if one.arg is None]
    given = [one for call in script.named("instantiate") for one in call.args[:1]]
    return any(not isinstance(one, ast.Attribute | ast.Subscript) for one in (*spread, *given))


def _read_paths(script: Script) -> set[str]:
    """Parts of a configuration that are taken whole, with all that is below them: `config.model`,
    `config["eval"]`."""
    paths = set[str]()
    for node in script.nodes:
        outer = next(script.around(node), None)
        if isinstance(outer, ast.Attribute | ast.Subscript) and node is outer.value:
            continue  # only a part of it is taken
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
            parts = dotted(node).lower().split(".")
            paths |= {".".join(parts[first:]) for first in range(1, len(parts))}
        key = node.slice if isinstance(node, ast.Subscript) else None
        if isinstance(node, ast.Call) and dotted(node.func).endswith(".get") and node.args:
            key = node.args[0]
        if (text := text_of(key)) is not None:
            paths.add(text.lower())
    return paths


# --------------------------------------------------------------------------------------------------
# Rule: too few seeds to decide anything.


# how others judge is not known; from three on a t-test can find a large difference
FEWEST_ELSEWHERE = 3


class TooFewPairs(AuditRule):
    id = "too-few-pairs"
    family = "design"
    gain = 0.5
    effort = "rework"
    why = (
        "with fewer than six paired seeds no difference can be significant at 0.05 by ranks, as"
        " studies here are judged; with one nothing is known of the noise between seeds, and with"
        " two almost nothing"
    )
    size = "every published row has one seed"
    source = "docs/statistics.md"
    fix = "six paired seeds, or seeds = {first = 8, step = 4, most = 16}"

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        from fulcrum.judge.statistics import pairs_needed

        plan, least = study.plan, pairs_needed(study.plan.alpha)
        if len(plan.seeds) < least and plan.design != "fractional":
            yield Sighting(
                "seeds",
                f"{len(plan.seeds)} pairs cannot reach significance at {plan.alpha:g}; {least} can",
            )

    def in_family(self, family: ConfigFamily) -> Sightings:
        seeds = [
            value
            for arm in (family.baseline, *family.arms)
            for path, value in arm.values.items()
            if path.rpartition(".")[2] == "seeds"
        ]
        fewest = min(
            (len(value) for value in seeds if isinstance(value, list)), default=FEWEST_ELSEWHERE
        )
        if fewest < FEWEST_ELSEWHERE:
            yield Sighting(family.baseline.at(), f"an arm with {fewest} seeds")
