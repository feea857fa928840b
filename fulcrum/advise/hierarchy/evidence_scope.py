"""Where an effect was measured, and in how many respects that is another place than the one that is asked about."""

from collections.abc import Iterable
from typing import NamedTuple

from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue, Phrase, parse
from fulcrum.spec.run import SCIENCE

ALIKE = 1.5  # token counts and budgets within this factor are called the same
BUDGET = "budget.images="


class EvidenceScope(NamedTuple):
    """A baseline that levers are added to."""

    recipe: str
    levers: frozenset[str]  # that are on already
    settings: frozenset[str]  # path=value, without the budget
    images: int | None  # budget; None: not known
    tokens: int | None  # image tokens of a sample; None: not known
    science: int

    def __str__(self) -> str:
        on = "".join(f" + {lever}" for lever in sorted(self.levers))
        counts = ((self.tokens, "tokens"), (self.images, "images"))
        facts = [f"{count:,} {what}" for count, what in counts if count is not None]
        facts += sorted(self.settings) + [f"science {self.science}"] * (self.science != SCIENCE)
        return f"{self.recipe}{on}" + (f" ({', '.join(facts)})" if facts else "")


def scope_of_phrase(phrase: Phrase, settings: Iterable[str] = ()) -> EvidenceScope:
    """Of a phrase that a person asks about."""
    return EvidenceScope(
        phrase.recipe,
        frozenset(str(lever) for lever in phrase.levers),
        frozenset(one for one in settings if not one.startswith(BUDGET)),
        phrase.run.budget.images,
        phrase.run.tokens,
        SCIENCE,
    )


def scope_of_base(
    base: str, settings: Iterable[str], images: int | None, science: int, catalogue: Catalogue
) -> EvidenceScope:
    """Of a row of evidence. What cannot be read any more (a file of one's own) has no known tokens, nor has a recipe of
    another science: it has changed since."""
    settings = tuple(settings)
    try:
        phrase = parse(base, catalogue, settings) if science == SCIENCE else None
    except BadInput:
        phrase = None
    if phrase is None:
        recipe, *levers = base.split(" + ")
        kept = frozenset(one for one in settings if not one.startswith(BUDGET))
        return EvidenceScope(recipe, frozenset(levers), kept, images, None, science)
    scope = scope_of_phrase(phrase, settings)
    own_budget = any(one.startswith(BUDGET) for one in settings)
    return scope._replace(images=scope.images if own_budget or images is None else images)


def differences(there: EvidenceScope, here: EvidenceScope) -> list[str]:
    """In which respects evidence from there is about another place than here, in words; each is one step of distance. A row
    that does not know its tokens or budget has those of its recipe: another recipe has others."""
    other = there.recipe != here.recipe
    return [
        word
        for word, unlike in (
            (f"on {there.recipe}", other),
            (f"beside {', '.join(sorted(there.levers)) or 'no other lever'}", there.levers != here.levers),
            (f"with {', '.join(sorted(there.settings)) or 'no settings'}", there.settings != here.settings),
            (_count(there.tokens, "tokens"), _unlike(there.tokens, here.tokens, other)),
            (_count(there.images, "images"), _unlike(there.images, here.images, other)),
            (f"science {there.science}, now {here.science}", there.science != here.science),
        )
        if unlike
    ]


def same_step(there: EvidenceScope, here: EvidenceScope) -> bool:
    """Is a step here the step that was timed there? Another network, or another lever beside it, has another time; how many
    pictures a run sees changes no step."""
    return there._replace(images=here.images, tokens=here.tokens) == here and not _unlike(there.tokens, here.tokens)


def _count(number: int | None, what: str) -> str:
    return f"{what} not known" if number is None else f"{number:,} {what}"


def _unlike(one: int | None, other: int | None, unknown: bool = False) -> bool:
    if one is None or other is None:
        return unknown
    return not 1 / ALIKE <= one / other <= ALIKE
