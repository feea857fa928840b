"""What a small world cannot tell about a large model, plainly: the page's own doubts."""

from fulcrum.judge import schema as number
from fulcrum.judge import sentences
from fulcrum.judge.page import escaped
from fulcrum.judge.tables import mean_sd
from fulcrum.report.evidence.decisions.asked_again import trained_longer
from fulcrum.report.evidence.decisions.decision import Decision
from fulcrum.report.evidence.decisions.known_studies import Studies
from fulcrum.report.evidence.decisions.ranked_decisions import table

PUBLISHED_IMAGES = 100_000 * 256  # steps and batch of a row of the published study (docs/published.md)
TITLE = "What a 32 px world cannot tell about a 1.2 B model"


def _longer(studies: Studies, rows: list[Decision]) -> list[str]:
    """What is left of the gains where both sides are trained longer."""
    longer = trained_longer(studies, rows)
    if longer is None or not longer.shrunk:
        return []
    first = longer.shrunk[0][0]
    mean = mean_sd(first.base, first.result.primary.name)[0]
    stands = "" if mean is None else f"the baseline gets {number.plain(mean, 2)}, "
    less, listed = len(longer.shrunk), sentences.listed([f"{one.name} {one.change}" for one, _ in longer.shrunk])
    shares = [
        f"{one.name} {one.removed:.0%} ({before.removed:.0%} in the ranking)"
        for one, before in longer.shrunk
        if one.removed is not None and before.removed is not None
    ]
    removed = escaped(sentences.listed(shares)) if shares else ""
    errors = f" Of what is then missing to real pictures they still remove: {removed}." if removed else ""
    return [
        f"**Gains shrink where training is longer.** With {number.plain(longer.times)} times the images {stands}and of "
        f"{longer.gains} gains that were asked again {less} {'is' if less == 1 else 'are'} less than half as large "
        f"({escaped(listed)}).{errors} Whether such decisions learn better or only sooner, a score so near to its end "
        "cannot tell."
    ]


def limits(studies: Studies) -> list[str]:
    rows = table(studies)
    plan = rows[0].result.plan if rows else None
    here = ""
    if plan is not None:
        more = number.plain(PUBLISHED_IMAGES / plan.images, 0)
        here = f"A training here sees {plan.images:,} images, the published ones saw {more} times as many. "
    return [
        *_longer(studies, rows),
        f"{here}What is scarce for a small model is not for one of a billion parameters. **Sizes do not carry over; "
        "directions may, or may not.** We compare directions only.",
        "The ranking's pictures are of one made-up world with few words. A caption there says everything that a picture "
        "shows, so captions weigh more here than they could on photographs, and nothing here speaks of faces, hands, text "
        "or style.",
        "Its codec, text encoder, teachers and judges are small networks that learned this world or one like it. A better "
        "autoencoder here says nothing about FLUX.2's, a teacher here nothing about DINO.",
        "A picture has few tokens. Routing saves less where there is little to save, and its published gains are at many.",
        "The learning rate is high and the training short: rounding loses fewer updates than it does in a long training "
        "at a low rate, so a precision that costs nothing here may cost there. The levers' pages tell the dose.",
        "What pays late (averages, a curated end, alignment switched off) has little time to pay in a short training.",
        "Our judges score attributes that were asked for. They do not see beauty, and what they agree on may be what only "
        "such networks see ([judges](../judges.md)).",
        "Hyperparameters were chosen for the baseline. Where a decision did not get a rate of its own, its verdict holds "
        "at the baseline's rate only.",
        "The published study has one seed for each row and faults of its own ([the list](../published.md)). *Replicated* "
        "means that we saw the same direction, not that its number is right; *opposite here* does not mean it is wrong.",
    ]
