"""Audit rules about how quality is measured."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from typing import TYPE_CHECKING

from fulcrum.advice.caption_sets import CaptionSet
from fulcrum.advice.configs import ConfigFamily, ConfigFile
from fulcrum.advice.rule import AuditRule, Sighting, Sightings
from fulcrum.advice.scripts import (
    Script,
    called,
    constant_of,
    dotted,
    is_constant,
    keyword,
    number,
    source_of,
)
from fulcrum.advice.tensors import signed_by

if TYPE_CHECKING:
    from fulcrum.advice.steps import PlannedStudy


# --------------------------------------------------------------------------------------------------
# Rule: fewer samples than the metric's features need.


WIDTH = 2048  # of Inception's features
NAMES = re.compile(
    r"(fid|eval|metric|frechet|valid)\w*[._](num_|n_|max_)?(samples|images)$|(^|[._])(num|n)_(fid|"
    r"eval)_(samples|images)$|(^|[._])fid_(num_)?samples$"
)
EXACT = ("frechet", "fid")


def _counted(script: Script, loop: ast.For | ast.While) -> float | None:
    """The number of samples at which a loop is left: `n += len(images)`, and `if n >= 500:
    break`."""
    counters = {
        dotted(node.target)
        for node in ast.walk(loop)
        if isinstance(node, ast.AugAssign)
        and isinstance(node.op, ast.Add)
        and re.search(r"^len\(|shape\[0\]|size\(0\)|batch_?size", ast.unparse(node.value))
    }
    for node in ast.walk(loop):
        if isinstance(node, ast.If) and any(
            isinstance(one, ast.Break | ast.Return) for one in node.body
        ):
            test = node.test
            above = (
                isinstance(test, ast.Compare)
                and len(test.ops) == 1
                and isinstance(test.ops[0], ast.Gt | ast.GtE)
            )
            if isinstance(test, ast.Compare) and above and dotted(test.left) in counters:
                return constant_of(script, test.comparators[0])
    return None


class FewSamplesForFeatures(AuditRule):
    id = "few-samples-for-features"
    family = "evaluation"
    gain = 0.4
    why = (
        "a Fréchet distance fits a covariance of 2,048 features: with fewer samples it is singular,"
        " and the bias is larger than what arms differ by"
    )
    size = (
        "below 2,048 samples the number says little; at 10,000 it is still biased, but alike for"
        " all arms"
    )
    source = "arXiv:1911.07023"
    fix = "draw at least 10,000 for FID, or use KID or CMMD, which are unbiased at any count"

    def in_script(self, script: Script) -> Sightings:
        for option in script.options:
            if (
                re.search(r"(fid|eval)\w*_(samples|images)$|^num_(fid|eval)_\w+$", option.name)
                and script.mentions(r"fid$|frechet")
                and isinstance(option.default, int)
                and 0 < option.default < WIDTH
            ):
                yield Sighting(
                    script.at(option.node), f"--{option.name} is {option.default:,} by default"
                )
        for update in script.named("update"):
            home = dotted(update.func).rpartition(".")[0]
            frechet = any(
                "FrechetInceptionDistance" in ast.unparse(made)
                for made in script.assignments.get(home, ())
            )
            drawn = is_constant(keyword(update, "real"), False)
            for loop in script.loops(update)[:1] if frechet and drawn else ():
                if (most := _counted(script, loop)) is not None and most < WIDTH:
                    yield Sighting(
                        script.at(update),
                        f"{source_of(update)} ends after some {most:,.0f} samples",
                    )

    def in_config(self, config: ConfigFile) -> Sightings:
        if not config.mentions(r"(^|[._\W])(fid|frechet)"):
            return
        for entry in config.entries:
            if NAMES.search(entry.path) and entry.number is not None and 0 < entry.number < WIDTH:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value} for a Fréchet distance",
                    f"set {config.setting(entry, 10000)}",
                )

    def in_plan(self, study: "PlannedStudy") -> Sightings:
        plan = study.plan
        if any(word in plan.primary for word in EXACT) and plan.samples < 256:
            yield Sighting(
                "samples",
                f"{plan.samples} pictures for {plan.primary}",
                "write: samples = 512 or more",
            )


# --------------------------------------------------------------------------------------------------
# Rule: arms are drawn with different guidance.


WORDS = ("guidance", "cfg_scale", "num_inference_steps", "sampler", "sampling_steps")


class GuidanceUnequal(AuditRule):
    id = "guidance-unequal"
    family = "evaluation"
    severity = "error"
    gain = 0.6
    why = (
        "guidance and the sampler move FID more than most training decisions: an arm with its own"
        " is compared with another ruler"
    )
    size = "several FID points between guidance 1 and 4"
    source = "docs/published.md, A7"
    fix = (
        "one sampler and one guidance for all arms, or each arm's best from the same sweep, told"
        " with the result"
    )

    def in_family(self, family: ConfigFamily) -> Sightings:
        for arm, change in family.changes:
            if any(word in change.path for word in WORDS):
                seen = f"the arm is drawn otherwise than the baseline: {change}"
                yield Sighting(arm.at(change.path), seen)


# --------------------------------------------------------------------------------------------------
# Rule: a kernel distance whose kernel is nearly straight.


WIDEST = 3.0  # features of length one are at most 2 apart
NAME = re.compile(r"(?i)^_?(sigma|bandwidth|bw|kernel_width)$")


class KernelBlindToDiversity(AuditRule):
    id = "kernel-blind-to-diversity"
    family = "evaluation"
    gain = 0.3
    why = (
        "on features of length one a Gaussian of width 10 is a straight line: the value is ten"
        " times the squared distance of the means, and hardly sees lost diversity"
    )
    size = "the published CMMD and DINO-MMD are such distances, to about 1 %"
    source = "docs/published.md, A14"
    published = "A14"
    fix = (
        "take the median distance of the reference's features as the width, or several widths, or"
        " KID's polynomial kernel"
    )

    def in_script(self, script: Script) -> Sightings:
        unit = script.mentions(r"^normalize$|^norm$|linalg|cmmd|clip|dino")
        for node, seen, width in _kernels(script) if unit and script.mentions(r"mmd") else ():
            if width is not None and width >= WIDEST:
                yield Sighting(script.at(node), f"{seen.format(width)} on features of length one")

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"mmd.*(sigma|bandwidth|kernel_width)$"):
            if entry.number is not None and entry.number >= WIDEST:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value}",
                    f"set {entry.leaf} to the median distance of the reference's features",
                )


def _kernels(script: Script) -> Iterator[tuple[ast.AST, str, float | None]]:
    """Where the width of a kernel is written, in words, and the width."""
    for name, values in script.assignments.items():
        if NAME.match(name.rpartition(".")[2]):
            yield from ((value, f"{name} = {{:g}}", number(value)) for value in values)
    for call in script.calls:
        if "mmd" in dotted(call.func).lower():
            width = number(keyword(call, "sigma", "bandwidth"))
            yield call, f"{dotted(call.func)} has a kernel of width {{:g}}", width
    for node in script.nodes:
        if isinstance(node, ast.FunctionDef) and "mmd" in node.name.lower():
            defaults = zip(reversed(node.args.args), reversed(node.args.defaults), strict=False)
            for argument, default in defaults:
                if NAME.match(argument.arg):
                    yield default, f"{node.name} has {argument.arg}={{:g}}", number(default)


# --------------------------------------------------------------------------------------------------
# Rule: a metric is handed pictures in another range than it expects.


METRICS = (
    "FrechetInceptionDistance",
    "KernelInceptionDistance",
    "InceptionScore",
    "MemorizationInformedFrechetInceptionDistance",
)


class MetricRange(AuditRule):
    id = "metric-range"
    family = "evaluation"
    severity = "error"
    gain = 1.0
    why = (
        "with normalize=True torchmetrics multiplies by 255: bytes wrap around and become the"
        " features of colour-negated pictures, and so do values below 0; without it, floats in [0,"
        " 1] are cut to black"
    )
    size = "the absolute number compares with nothing"
    source = "docs/published.md, A1"
    published = "A1"
    fix = (
        "FrechetInceptionDistance(normalize=True) with floats in [0, 1], or normalize=False with"
        " uint8"
    )

    def in_script(self, script: Script) -> Sightings:
        for name, values in script.assignments.items():
            for value in values:
                if not (isinstance(value, ast.Call | ast.Attribute) and (made := _metric(value))):
                    continue
                expects_floats = is_constant(keyword(made, "normalize"), True)
                for update in script.named(f"{name}.update"):
                    bytes_given = update.args and _bytes(script, update.args[0])
                    if expects_floats and bytes_given:
                        yield Sighting(
                            script.at(update),
                            f"{source_of(update)} hands over uint8, and line {made.lineno} says"
                            " normalize=True",
                        )
                    elif update.args and (signed := signed_by(script, update.args[0], update)):
                        takes = "says normalize=True: [0, 1]" if expects_floats else "expects bytes"
                        yield Sighting(
                            script.at(update),
                            f"{source_of(update)} hands over [-1, 1] ({signed}), and line"
                            f" {made.lineno} {takes}",
                            "bring them to [0, 1] first: (images / 2 + 0.5).clamp(0, 1), with"
                            " normalize=True",
                        )
                    elif (
                        not expects_floats
                        and keyword(made, "normalize") is None
                        and update.args
                        and not bytes_given
                        and _unit_floats(script, update.args[0])
                    ):
                        yield Sighting(
                            script.at(update),
                            f"{source_of(update)} hands over floats, and line {made.lineno} does"
                            " not say normalize=True",
                        )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"(fid|kid|frechet|inception)\w*.*[._]normali[sz]e$"):
            folder = entry.path.rpartition(".")[0]
            given = config.first(
                rf"^{folder}\.(input_)?(dtype|image_dtype|image_format|range)$".replace("[", r"\[")
            )
            if entry.on and given and given.text in ("uint8", "byte", "bytes", "0-255", "[0, 255]"):
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value} and {given.path} = {given.value}",
                )


def _metric(value: ast.AST) -> ast.Call | None:
    """The call that makes the metric, behind `.to(device)`."""
    for part in ast.walk(value):
        if isinstance(part, ast.Call) and called(part) in METRICS:
            return part
    return None


def _bytes(script: Script, given: ast.AST) -> bool:
    """Is its last known format uint8?"""
    for _ in range(6):
        if isinstance(given, ast.Call):
            formats = script.cast_formats(given)
            if formats:
                return formats == {"uint8"}
            if called(given) in ("float", "double"):
                return False
        if isinstance(given, ast.BinOp) and isinstance(given.op, ast.Div):
            return False
        if isinstance(given, ast.Call) and isinstance(given.func, ast.Attribute):
            given = given.func.value
        elif isinstance(given, ast.Name | ast.Attribute) and script.assignments.get(dotted(given)):
            given = script.assignments[dotted(given)][-1]
        else:
            return False
    return False


def _unit_floats(script: Script, given: ast.AST) -> bool:
    """Is it surely floats: divided by 255, clamped to [0, 1], `(x + 1) / 2`, rand?"""
    text = " ".join(
        ast.unparse(part)
        for part in script.meanings(given, 2)
        if isinstance(part, ast.Call | ast.BinOp)
    )
    return any(
        sign in text.replace(" ", "")
        for sign in (
            "/255",
            "/2+0.5",
            "+1)/2",
            "clamp(0,1)",
            "clamp(0.0,1.0)",
            "clamp(min=0,max=1)",
            "ToTensor(",
            "torch.rand(",
        )
    )


# --------------------------------------------------------------------------------------------------
# Rule: evaluation samples share their initial noise.


MEASURES = r"fid$|frechet|cmmd|inception|clip_?score|kid$|evaluate|metric"
UPDATES = re.compile(r"(?i)(metric|fid|kid|frechet|inception|cmmd|score|feature)\w*(\.update)?\(")
DRAWS = ("randn", "pipeline", "pipe", "sample", "generate", "generate_images", "draw")
RANKS = ("rank", "process_index", "local_rank", "global_rank", "get_rank()")


class NoiseSharedBySamples(AuditRule):
    id = "noise-shared-by-samples"
    family = "evaluation"
    severity = "error"
    gain = 0.7
    why = (
        "a generator that is seeded anew for every batch gives every batch the same noises:"
        " thousands of samples have the diversity of one batch"
    )
    size = "10,000 samples that share 32 noises, in the published study"
    source = "docs/published.md, A3"
    published = "A3"
    fix = (
        "seed once before the loop, or by the sample: manual_seed(seed + first_index), with the"
        " rank's offset in it"
    )

    def in_script(self, script: Script) -> Sightings:
        if not script.mentions(MEASURES):
            return
        for call in script.named("manual_seed", "seed_everything", "set_seed"):
            loops = [
                loop
                for loop in script.loops(call)
                if isinstance(loop, ast.For) and loop not in _epochs(script, call)
            ]
            if (
                not call.args
                or not loops
                or not _measured(script, call)
                or _in_comprehension(script, call)
            ):
                continue
            moving = {name for loop in loops for name in _moving(loop)}
            used = {
                dotted(part)
                for part in script.meanings(call.args[0], 2)
                if isinstance(part, ast.Name | ast.Attribute)
            }
            draws = any(
                isinstance(node, ast.Call) and called(node) in DRAWS for node in ast.walk(loops[0])
            )
            if draws and not used & moving:
                yield Sighting(
                    script.at(call),
                    f"line {call.lineno} seeds inside the loop of line {loops[0].lineno} with a"
                    " value that does not change in it",
                )
        yield from self._ranks(script)

    def _ranks(self, script: Script) -> Sightings:
        """One seed for all processes, whose samples are gathered into one metric."""
        for call in script.named("manual_seed"):
            home = script.function(call)
            if home is None or script.loops(call) or not call.args or not _measured(script, call):
                continue
            body = ast.unparse(home)
            gathers = any(
                word in body
                for word in ("all_gather", "all_reduce", "gather_for_metrics", ".gather(")
            )
            used = " ".join(dotted(part) for part in script.meanings(call.args[0], 2))
            if gathers and not any(word in used for word in RANKS):
                yield Sighting(
                    script.at(call),
                    "every process seeds alike, and their samples are gathered into one metric",
                    "add the rank: manual_seed(seed + rank)",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(
            r"(eval|metric|fid|sampl)\w*.*(same_noise|reseed|fixed_seed_per_batch|reset_seed)\w*$"
        ):
            if entry.on:
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}")


def _moving(loop: ast.For) -> set[str]:
    """Names that change from one turn to the next: the loop's own, and whatever is assigned in
    it."""
    names = {part.id for part in ast.walk(loop.target) if isinstance(part, ast.Name)}
    for node in ast.walk(loop):
        if isinstance(node, ast.AugAssign):
            names.add(dotted(node.target))
    return names


def _measured(script: Script, node: ast.AST) -> bool:
    """Do the samples go into a metric? Previews that are only looked at may share their noise."""
    home = script.function(node)
    if home is None:
        return True
    named = any(word in home.name.lower() for word in ("fid", "metric"))
    return named or UPDATES.search(ast.unparse(home)) is not None


def _epochs(script: Script, node: ast.AST) -> list[ast.AST]:
    """The loop of the training itself: seeding each evaluation alike is right."""
    return [
        loop
        for loop in script.loops(node)
        if any(
            isinstance(one, ast.Call) and dotted(one.func).endswith("backward")
            for one in ast.walk(loop)
        )
    ]


def _in_comprehension(script: Script, node: ast.AST) -> bool:
    return any(isinstance(one, ast.ListComp | ast.GeneratorExp) for one in script.around(node))


# --------------------------------------------------------------------------------------------------
# Rule: the pictures that a metric compares with were trained on.


PATH = re.compile(r"(^|[._])(path|dir|folder|root|data_dir|dataset|name|local|remote)$")


class ReferenceInTraining(AuditRule):
    id = "reference-in-training"
    family = "evaluation"
    severity = "error"
    gain = 0.5
    effort = "edit"
    why = "a model that repeats its training pictures then has the best score of all"
    size = "memorising is rewarded"
    source = "arithmetic: a distance to what was learned by heart is zero"
    fix = "hold pictures out before training: fulcrum data import --hold-out 0.05 --group FIELD"

    def in_captions(self, captions: CaptionSet) -> Sightings:
        trained = Counter(one.sha for one in captions.samples if one.split in ("train", ""))
        held = [
            one
            for one in captions.samples
            if one.split in ("validation", "reference") and one.sha in trained
        ]
        if held:
            yield Sighting(
                held[0].name,
                f"{len(held):,} held-out pictures are also in the training split, bit for bit",
            )

    def in_config(self, config: ConfigFile) -> Sightings:
        paths = [
            entry
            for entry in config.entries
            if isinstance(entry.value, str) and PATH.search(entry.path) and "/" in entry.value
        ]
        reference = [
            entry for entry in paths if re.search(r"reference|fid|real_images|eval", entry.path)
        ]
        trained = {entry.value.rstrip("/"): entry for entry in paths if "train" in entry.path}
        for entry in reference:
            if entry.value.rstrip("/") in trained and "train" not in entry.path:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} and {trained[entry.value.rstrip('/')].path} are both"
                    f" {entry.value}",
                )


# --------------------------------------------------------------------------------------------------
# Rule: pictures are made smaller for a teacher or a metric without smoothing.


JUDGES = re.compile(
    r"(?i)teacher|dino|siglip|inception|lpips|metric|repa|perceptual|features?_extract"
    r"|(?<![a-z])(clip|fid|eval\w*)(?![a-z])"
)
NO_PICTURE = re.compile(r"(?i)mask|feat|embed|latent|logit|pos|grid|small")
PICTURE = re.compile(
    r"(?i)image|img|pixel|picture|photo|frame|rgb|generated|recon|(^|[._])(x|real|fake|samples?)$"
)
SMOOTH = ("bilinear", "bicubic")


class ResizeWithoutSmoothing(AuditRule):
    id = "resize-without-smoothing"
    family = "evaluation"
    gain = 0.15
    why = (
        "nearest-neighbour and unsmoothed resizing alias: a teacher or judge then sees edges that"
        " are not there, and teachers are compared on damaged pictures"
    )
    size = "FID moves by several points with the resizing alone"
    source = "docs/published.md, A16; arXiv:2104.11222"
    published = "A16"
    fix = 'F.interpolate(x, size, mode="bicubic", antialias=True), or Pillow\'s resize'

    def in_script(self, script: Script) -> Sightings:
        for call in script.named("F.interpolate", "functional.interpolate"):
            mode = keyword(call, "mode") or (call.args[3] if len(call.args) > 3 else None)
            if not _for_a_judge(script, call) or keyword(call, "scale_factor") is not None:
                continue
            if mode is None or is_constant(mode, "nearest"):
                yield Sighting(script.at(call), f"{source_of(call)} resizes by nearest neighbour")
            elif (
                isinstance(mode, ast.Constant)
                and mode.value in SMOOTH
                and not is_constant(keyword(call, "antialias"), True)
            ):
                yield Sighting(script.at(call), f"{source_of(call)} has no antialias=True")
        for call in script.named("Resize", "functional.resize", "F.resize", "TF.resize"):
            plain = is_constant(keyword(call, "antialias"), False)
            if (
                (plain or "NEAREST" in ast.unparse(call))
                and JUDGES.search(script.context(call))
                and "mask" not in _given(call)
            ):
                yield Sighting(script.at(call), f"{source_of(call)} does not smooth")

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(
            r"(teacher|dino|clip|fid|inception|metric|repa|feature|eval)\w*.*(resize|interpolation|"
            r"resample)\w*$"
        ):
            if entry.text.startswith("nearest"):
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value}",
                    f"set {entry.leaf} to bicubic, with antialias",
                )
        for entry in config.find(
            r"(teacher|dino|clip|fid|inception|metric|repa|feature|eval)\w*.*antialias$"
        ):
            if entry.off:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value}",
                    f"set {config.setting(entry, True)}",
                )


def _for_a_judge(script: Script, call: ast.Call) -> bool:
    """Is it a picture, on its way to a teacher or a metric? Feature maps, masks and positions are
    resized as one likes."""
    given = _given(call)
    picture = PICTURE.search(given) is not None and NO_PICTURE.search(given) is None
    return picture and JUDGES.search(f"{script.context(call)} {given}") is not None


def _given(call: ast.Call) -> str:
    return dotted(call.args[0] if call.args else keyword(call, "input") or call)


# --------------------------------------------------------------------------------------------------
# Rule: how many samples a metric sees depends on the number of processes.


RANK_NAMES = re.compile(
    r"(world_size|num_processes|num_gpus|n_gpus|get_world_size\(\)|device_count\(\)|num_devices)$"
)
COUNTS = re.compile(r"(?i)(sample|image|fid|eval)")
PER = (
    r"(fid|eval|metric|valid|sampl)\w*.*(per_(gpu|device|rank|process)|(num|n|eval|subset_num|"
    r"max)_batches)$"
    r"|(^|[._])(samples|images)_per_(gpu|device|rank|process)$"
)


class SamplesPerProcess(AuditRule):
    id = "samples-per-process"
    family = "evaluation"
    gain = 0.5
    why = (
        "a Fréchet distance is biased by its sample count: 2,048 samples on one GPU and 10,240 on"
        " eight give two numbers for one model"
    )
    size = "some FID points between 2,000 and 10,000 samples, more than most arms"
    source = "docs/published.md, A2; arXiv:1911.07023"
    published = "A2"
    fix = (
        "fix the total and divide it: per_rank = total // world_size, with the total on the"
        " metric's card"
    )

    def in_script(self, script: Script) -> Sightings:
        for node in script.nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                name = " ".join(map(dotted, targets))
                grows = isinstance(node.value, ast.BinOp) and _grows(node.value)
                if (
                    grows
                    and COUNTS.search(name)
                    and _is_measured(script)
                    and "batch" not in name.lower()
                ):
                    yield Sighting(
                        script.at(node), f"{source_of(node)}: the more processes, the more samples"
                    )

    def in_config(self, config: ConfigFile) -> Sightings:
        measured = config.find(r"fid|frechet|cmmd|kid|inception|metric")
        for entry in config.find(PER):
            if measured and entry.number is not None and entry.number > 0:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value} is counted per process",
                    "give the total: num_samples: 10000",
                )


def _grows(node: ast.BinOp) -> bool:
    """A product with the number of processes in it, not divided by it again."""
    parts = [part for part in ast.walk(node) if isinstance(part, ast.BinOp)]
    divided = any(isinstance(part.op, ast.FloorDiv | ast.Div) for part in parts)
    return not divided and any(
        isinstance(part.op, ast.Mult)
        and any(RANK_NAMES.search(dotted(side)) for side in (part.left, part.right))
        for part in parts
    )


def _is_measured(script: Script) -> bool:
    return script.mentions(r"fid$|frechet|cmmd|inception")


# --------------------------------------------------------------------------------------------------
# Rule: the teacher and the judge are of one family.


FAMILIES = ("dino", "clip", "siglip", "inception")


class TeacherIsJudge(AuditRule):
    id = "teacher-is-judge"
    family = "evaluation"
    severity = "note"
    gain = 0.1
    effort = "edit"
    why = (
        "a model that was drawn towards a network's features is then judged by the same features:"
        " it gains there more than pictures do"
    )
    size = "published: REPA with DINOv3 gains 23 % on DINO-MMD, 15 % on CMMD, 20 % on FID"
    source = "PRX Part 2"
    fix = "judge by a network of another family as well, and let that one decide"

    def in_config(self, config: ConfigFile) -> Sightings:
        teachers = [
            entry for entry in config.find(r"teacher|repa|align") if isinstance(entry.value, str)
        ]
        judges = [
            entry for entry in config.find(r"metric|eval|judge|fid|mmd") if entry not in teachers
        ]
        for teacher in teachers:
            name = next((one for one in FAMILIES if one in teacher.text), "")
            for judge in judges if name else ():
                others = [
                    other
                    for other in judges
                    if not re.search(name, f"{other.path} {other.text}")
                    and re.search(r"fid|inception|clip|cmmd|kid", f"{other.path} {other.text}")
                ]
                if re.search(name, f"{judge.path} {judge.text}") and not others:
                    yield Sighting(
                        config.at(judge),
                        f"{teacher.path} = {teacher.value}, and {judge.path} is the only judge",
                    )
                    return


# --------------------------------------------------------------------------------------------------
# Rule: the validation loss draws new times and noise whenever it is asked.


HOME = re.compile(
    r"(?i)^(?!test_)(\w+_)?(val|valid|validate|validation|eval|evaluate|evaluation)(_\w+)?$"
)
RANDOM_CALLS = ("randn_like", "randn", "rand", "rand_like", "randint")


class ValidationDrawsAnew(AuditRule):
    id = "validation-draws-anew"
    family = "evaluation"
    gain = 0.3
    why = (
        "the loss of a diffusion model depends on the drawn time far more than on the model: new"
        " draws bury what an arm does, and pairs are not pairs"
    )
    size = "noise of the size of most effects; gone when times and noise are fixed"
    source = "docs/published.md, A15"
    published = "A15"
    fix = (
        "draw with torch.Generator().manual_seed(index of the sample), the same in every"
        " evaluation, and stratify the times"
    )

    def in_script(self, script: Script) -> Sightings:
        for home in script.nodes:
            if not isinstance(home, ast.FunctionDef) or not HOME.search(home.name):
                continue
            text = ast.unparse(home)
            fixed = any(
                word in text for word in ("manual_seed", "fork_rng", "set_seed", "generator=")
            )
            if fixed or "loss" not in text:
                continue
            draws = [
                node
                for node in ast.walk(home)
                if isinstance(node, ast.Call)
                and called(node) in RANDOM_CALLS
                and keyword(node, "generator") is None
            ]
            if draws:
                yield Sighting(
                    script.at(draws[0]),
                    f"`{home.name}` computes a loss on {source_of(draws[0])}, drawn anew each time",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(
            r"(val|eval)\w*[._](\w+[._])?(fixed_noise|fixed_timesteps|fix_noise|"
            r"deterministic_noise|seeded)$"
        ):
            if entry.off:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value}",
                    f"set {config.setting(entry, True)}",
                )
