"""An audit as one HTML page in the report's style: it opens offline, runs no script, and every value in it is text."""

from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from fulcrum.advise.audit_target import Audit
from fulcrum.advise.audit_text import EFFORTS, LEGEND, grouped, headline, legend
from fulcrum.files.atomic import write_atomic
from fulcrum.spec.errors import inert

BADGES = {"error": "bad", "warning": "open", "note": "even"}  # of the report's style


def render(audit: Audit) -> str:
    environment = Environment(
        loader=PackageLoader("fulcrum.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    style = resources.files("fulcrum.report").joinpath("templates/style.css").read_text("utf-8")
    return environment.get_template("audit.jinja").render(
        audit=audit,
        groups=grouped(audit.faults),
        headline=headline(audit),
        legend=legend(audit),
        legend_words=LEGEND,
        style=Markup(style),
        badges=BADGES,
        efforts=EFFORTS,
    )


def write_page(audit: Audit, path: Path) -> None:
    write_atomic(path, inert(render(audit)))
