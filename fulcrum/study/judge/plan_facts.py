"""What a study ran, for its page: the plan's choices, what the baseline is, its data and its text encoder in words."""

from fulcrum.data.fillers import OneStyle, World
from fulcrum.judge.looks import spending
from fulcrum.judge.schema import PlanFacts
from fulcrum.networks.fillers import EmbeddedText
from fulcrum.spec.edit import get
from fulcrum.spec.run import RunSpec
from fulcrum.spec.words import in_brief
from fulcrum.study.judge.margins import margins
from fulcrum.study.judge.pairing import Measurements
from fulcrum.study.plan.arms import Arm
from fulcrum.study.plan.plan import Plan


def plan_facts(plan: Plan, base: Arm, measured: Measurements) -> PlanFacts:
    run = base.run
    return PlanFacts(
        hash=plan.hash,
        baseline=str(base.phrase),
        primary_metric=plan.primary,
        seeds=plan.seeds,
        images=run.budget.images,
        smallest_effect=margins(plan, [base], measured, plan.primary).get(base.name, plan.smallest_effect or 0.0),
        alpha=plan.alpha,
        threads_per_cell=plan.threads,
        guidance=float(get(run, "sample.guide.scale")),
        learning_rate_policy=plan.rate_policy,
        sample_count=plan.samples,
        settings=plan.settings,
        data=_data(run),
        text=_text(run),
        looks=plan.looks,
        spending=spending(plan.looks, plan.alpha),
    )


def baseline_says(plan: Plan, arm: Arm) -> str:
    """What a baseline is: its recipe, with the levers and settings that every arm has too."""
    scale = next((one.settings for one in plan.scales if one.name == arm.scale), ())
    images = (f"budget.images={plan.images}",) if plan.images is not None else ()
    changed = (*map(str, arm.levers), *plan.settings, *images, *scale)
    return f"the recipe {arm.phrase.recipe}" + (f" with {', '.join(changed)}" if changed else " as it is")


def _data(run: RunSpec) -> str:
    source, caption = run.data.source, run.data.caption
    words = f"{caption.style} captions" if isinstance(caption, OneStyle) else in_brief(caption)
    captions = f"{words}, {run.data.size} px"
    if type(source) is not World:
        return f"{in_brief(source)}, {captions}"
    objects = "one object" if source.max_objects == 1 else f"up to {source.max_objects} objects"
    kind = "photographed" if source.domain == "real" else "drawn"
    planted = f", {source.mislabelled:.0%} of them mislabelled" if source.mislabelled else ""
    return f"the embedded world: {source.count:,} {kind} scenes of {objects}{planted}, {captions}"


def _text(run: RunSpec) -> str:
    text = run.encode.text
    return f"the embedded encoder, width {text.width}" if isinstance(text, EmbeddedText) else in_brief(text)
