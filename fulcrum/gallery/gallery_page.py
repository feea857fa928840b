"""The gallery's page: one HTML text with its style and script inside; it asks nobody but the server that it came from."""

from importlib import resources

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fulcrum.gallery.exhibit import Collection
from fulcrum.gallery.gallery_request import MOST_COLUMNS, MOST_GUIDANCE, MOST_LETTERS, MOST_PICTURES, MOST_SEED, MOST_STEPS
from fulcrum.judge.page import script_hash

FIRST = 4  # runs that are shown until a person chooses
LIMITS = {
    "letters": MOST_LETTERS,
    "pictures": MOST_PICTURES,
    "steps": MOST_STEPS,
    "columns": MOST_COLUMNS,
    "guidance": MOST_GUIDANCE,
    "seed": MOST_SEED,
}
POLICY = (
    "default-src 'none'; img-src 'self' data:; style-src 'unsafe-inline'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'; script-src '{}'"
)


def render(collection: Collection, prompts: list[str]) -> str:
    """`prompts`: examples that a person may begin with. Every value is escaped; run names and prompts are text."""
    environment = Environment(
        loader=PackageLoader("fulcrum.gallery"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    runs = [exhibit.facts() for exhibit in collection.exhibits]
    return environment.get_template("gallery.jinja").render(
        collection=collection,
        runs=runs,
        prompts=prompts,
        first=FIRST,
        limits=LIMITS,
        data={"runs": runs, "limits": LIMITS, "first": FIRST, "prompts": prompts},
        style=Markup(_text("fulcrum.report", "style.css") + _text("fulcrum.gallery", "gallery.css")),
        script=Markup(script()),
    )


def script() -> str:
    return _text("fulcrum.gallery", "gallery.js")


def policy() -> str:
    """The content security policy: one script may run, known by its hash."""
    return POLICY.format(script_hash(script()))


def _text(package: str, name: str) -> str:
    return resources.files(package).joinpath(f"templates/{name}").read_text("utf-8")
