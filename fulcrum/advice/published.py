"""Published faults, published speeds, and the findings of our own studies."""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from fulcrum.files.paths import read_regular
from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.measured_table import read_measured
from fulcrum.spec.errors import BadInput
from fulcrum.spec.memory import RankLayout
from fulcrum.spec.phrase import parse, read_lever
from fulcrum.spec.run import SCIENCE
from fulcrum.spec.speed import MEASURED, OTHER, step_time

# --------------------------------------------------------------------------------------------------
# What the numbers A1 to A21 mean that rules cite: faults of the published training code, as
# docs/published.md has them.


CITED = re.compile(r"\bA\d{1,2}\b")
FAULTS = {
    "A1": (
        "FID is handed bytes where it expects floats between 0 and 1; multiplying by 255 wraps"
        " around, and the features are those of colour-negated pictures"
    ),
    "A2": "how many samples enter FID depends on the number of GPUs: 2,048 on one, 10,240 on eight",
    "A3": "every evaluation batch on every rank starts from the same noise seed",
    "A4": "the seed of the run does not reach the order of the data",
    "A5": "18 of 29 arms write into the baseline's checkpoint folder, with overwriting allowed",
    "A6": "checkpoints hold weights only, and nothing resumes by itself",
    "A7": (
        "some arms change two things: REPA-E (autoencoder and alignment), LPIPS (alignment and"
        " LPIPS), TREAD (routing and the sampler)"
    ),
    "A8": "the Muon arm also moves Adam's epsilon from 1e-15 to 1e-8",
    "A9": "the short-caption arm changes the captioner too, and is judged on long prompts",
    "A10": "nothing reads the setting that the BF16 arm sets",
    "A11": "one arm encodes its texts while it trains, the others read them from a cache",
    "A12": "TREAD drops 50 % of the tokens, SPRINT 75 %",
    "A13": (
        "some configurations cannot run: 16 channels into a model of 3, a perceptual loss without"
        " x-prediction, a default file that is not there"
    ),
    "A14": (
        "CMMD and DINO-MMD use a Gaussian kernel of width 10 on features of length one, where it is"
        " almost a straight line: the value is 10 times the squared distance of the means, within"
        " about 1 %"
    ),
    "A15": "the validation loss draws new times and noise whenever it is asked",
    "A16": "the teacher's input is resized by nearest neighbour, the metrics' without smoothing",
    "A17": "the projector of the alignment term is itself stored and trained in BF16",
    "A18": (
        "FSDP's mixed precision casts the time and the rotary table to BF16 at the door of each"
        " block"
    ),
    "A19": "errors of single samples are swallowed, and the batch shrinks silently",
    "A20": (
        "FLUX.2's autoencoder is loaded through FLUX.1's class: wrong scale, batch-norm statistics"
        " dropped"
    ),
    "A21": (
        "the iREPA arm takes from each token the mean over its own features (about zero after a"
        " LayerNorm) instead of the mean over tokens, and projects by attention instead of a"
        " convolution"
    ),
}


def explained(texts: Iterable[str]) -> list[str]:
    """A line for each number that the texts cite."""
    cited = {number for text in texts for number in CITED.findall(text)}
    return [f"{number}: {fault}" for number, fault in FAULTS.items() if number in cited]


# --------------------------------------------------------------------------------------------------
# The estimate held against the speeds that were published: each arm's ratio to its baseline,
# computed and in print.


SPRINT = "sprint(start=2, end=12, choice=uniform)"  # the published span, and tokens from anywhere
# a ViT-L
TEACHER = (
    "encode.teachers=[pretrained_teacher(name=dinov3, patch=16, width=1024, instead_of=world)]"
)
WITHIN = 0.10


class PublishedArm(NamedTuple):
    """One row of the published table."""

    name: str
    phrase: str
    baseline: str
    batches: float  # a second, of the arm
    baseline_batches: float
    settings: tuple[str, ...] = ()
    why: str = ""  # it is met no better than it is


WAITING = (
    "of the time that routing saves at 256 px by count about a third shows in print, for both"
    " routes alike, and at 1024 px more than all of it: at 256 px the step waits for something that"
    " fewer tokens do not shorten; what, nobody says"
)
ARMS = (
    PublishedArm("TREAD, 256 px", "prx_256 + tread", "prx_256", 4.11, 3.95, why=WAITING),
    PublishedArm("SPRINT, 256 px", f"prx_256 + {SPRINT}", "prx_256", 4.20, 3.95, why=WAITING),
    PublishedArm("TREAD, 1024 px", "prx_pixels_1024 + tread", "prx_pixels_1024", 1.64, 1.33),
    PublishedArm("SPRINT, 1024 px", f"prx_pixels_1024 + {SPRINT}", "prx_pixels_1024", 1.89, 1.33),
    PublishedArm("REPA, DINOv3", "prx_256 + repa", "prx_256", 3.46, 3.95, (TEACHER,)),
    PublishedArm("REPA, DINOv2", "prx_256 + repa", "prx_256", 3.66, 3.95, (TEACHER,)),
    PublishedArm(
        "REPA-E's autoencoder",
        "prx_256_repa_e",
        "prx_256",
        3.39,
        3.95,
        why=(
            "its encoder and its teacher are counted as those of the rows above, and in print it is"
            " slower than they are together; a teacher costs in print two to three times what its"
            " products do"
        ),
    ),
    PublishedArm(
        "FLUX.2's autoencoder",
        "prx_256_flux2",
        "prx_256",
        1.79,
        3.95,
        why=(
            "its encoder is FLUX.1's with 32 channels at the end, 0.1 % more FLOPs, and the"
            " denoiser has 0.03 % more: no count gives a factor of two. The 305 ms more are about"
            " what this encoder takes in fp32 without the matrix units (237 ms by the same share):"
            " how it was run is not published. Latents from a cache have none of it"
        ),
    ),
)


class ComparedArm(NamedTuple):
    name: str
    computed_ms: float
    published_ms: float
    computed_ratio: float  # of speeds: arm over baseline
    published_ratio: float
    off: float  # how far the computed ratio is from the published one
    why: str

    @property
    def met(self) -> bool:
        return abs(self.off) <= WITHIN


def seconds(phrase: str, settings: tuple[str, ...] = (), other: float = OTHER) -> float:
    """Of a step as the published arms ran it: codec and teacher in every step, in the compute
    dtype, texts beforehand."""
    run = parse(phrase, CATALOG, settings).run
    machine = MEASURED.machine
    return step_time(
        run,
        MEASURED.text,
        machine,
        RankLayout(machine.number, machine.shards),
        online=True,
        other=other,
    ).total


def compared() -> list[ComparedArm]:
    rows = []
    for arm in ARMS:
        own, base = seconds(arm.phrase, arm.settings), seconds(arm.baseline)
        computed, published = base / own, arm.batches / arm.baseline_batches
        off = computed / published - 1
        why = arm.why if abs(off) > WITHIN else ""
        rows.append(
            ComparedArm(arm.name, 1000 * own, 1000 / arm.batches, computed, published, off, why)
        )
    return rows


def compared_words(rows: list[ComparedArm]) -> str:
    from fulcrum.spec.speed import SHARE

    head = f"{'arm over its baseline':<22} {'computed':>9} {'published':>9} {'off':>7}"
    lines = [
        f"{row.name:<22} {row.computed_ratio:>9.3f} {row.published_ratio:>9.3f} {row.off:>+7.1%}"
        + ("" if row.met else "  more than 10 %: see below")
        for row in rows
    ]
    whys = [f"{row.name}: {row.why}" for row in rows if not row.met]
    base = 1000 * seconds("prx_pixels_1024")
    return "\n".join(
        [
            (
                f"speeds on {MEASURED.machine}; calibrated by the baseline at 256 px"
                f" ({MEASURED.batches} batches a second) and nothing else, products at {SHARE:.0%}"
                " of the peak"
            ),
            head,
            *lines,
            f"{sum(row.met for row in rows)} of {len(rows)} within 10 %",
            *whys,
            (
                f"Not a ratio of this table, and not met: the baseline at 1024 px takes {base:.0f}"
                f" ms by the estimate, {1000 / 1.33:.0f} in print."
            ),
        ]
    )


# --------------------------------------------------------------------------------------------------
# What studies of ours, and of the user, found about the arms that rules speak of; beside what was
# published.


MOST = 64_000_000  # bytes of a report that are read


class OwnEvidence(NamedTuple):
    """Sentences by what a rule names: a lever, or one of its settings."""

    sentences: Mapping[str, tuple[str, ...]]

    def of(self, lever: str) -> tuple[str, ...]:
        return self.sentences.get(lever, ())


NO_EVIDENCE = OwnEvidence({})


def own_evidence(studies: Path, measured: Path, levers: Iterable[str]) -> OwnEvidence:
    """From the reports of finished studies below a folder, and from the table of what we measured.
    Each sentence names its arm, for a lever has as many effects as settings; a rule that names a
    setting hears of no other."""
    told = list[tuple[str, str]]()
    for report in sorted(studies.glob("study-*/report.json")) if studies.is_dir() else ():
        told += _from_report(report)
    told += _from_table(read_measured(measured))
    wanted = {lever: read_lever(lever, CATALOG) for lever in levers if lever}
    return OwnEvidence(
        {
            lever: tuple(sentence for arm, sentence in told if _is_of(read, arm, lever))
            for lever, read in wanted.items()
        }
    )


def _is_of(wanted: Any, arm: str, lever: str) -> bool:
    """Does the arm have the lever, with every setting that is named? One that cannot be read any
    more is known by name."""
    if arm.partition("(")[0] != wanted.name:
        return False
    try:
        own = read_lever(arm, CATALOG)
    except BadInput:
        return "(" not in lever
    return all(getattr(own, name) == getattr(wanted, name) for name in wanted.model_fields_set)


def _from_table(rows: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Arm and sentence of the rows of the newest science that there is."""
    newest = max((row["science"] for row in rows), default=0)
    older = f"; by version {newest} of the science, now {SCIENCE}" if newest != SCIENCE else ""
    told = []
    for row in rows:
        arm, settings = row.get("arm") or row["lever"], row.get("settings") or ()
        place = (row.get("base") or row["recipe"]) + (
            f" with {', '.join(settings)}" if settings else ""
        )
        effect = f"{row['metric']} {row['change']:+.3g} [{row['low']:+.3g}, {row['high']:+.3g}]"
        sentence = (
            f"measured by us: {arm} on {place}: {effect}, {row['pairs']} pairs:"
            f" {row['verdict']}{older}"
        )
        told += [(arm, sentence)] if row["science"] == newest else []
    return told


def _from_report(path: Path) -> list[tuple[str, str]]:
    """Effects on the primary metric of arms that are one lever alone."""
    try:
        report = json.loads(read_regular(path, limit=MOST))
        primary = report["plan"]["primary_metric"]
        # held against the study's baseline
        plain = {arm["name"] for arm in report["arms"] if not arm["against"]}
        rows = [
            row
            for row in report["effects"]
            if row["metric"] == primary and row.get("unit", "images") == "images"
        ]
        return [
            (
                str(row["arm"]),
                (
                    f"your study {path.parent.name}: {row['arm']}: {primary} {row['mean']:+.3g}"
                    f" [{row['low']:+.3g}, {row['high']:+.3g}], {row['n']} pairs: {row['verdict']}"
                ),
            )
            for row in rows
            if row["arm"] in plain and " + " not in str(row["arm"])
        ]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []
