"""The table of all rules that docs/audit.md shows, written from the rules themselves."""

from fulcrum.advise.audit_rule import AuditRule
from fulcrum.advise.rules.rule_list import RULES

BEGIN, END = "<!-- rules: written by `fulcrum audit --rules`, held by a test -->", "<!-- end of the rules -->"
LOOKS = {
    "in_script": "scripts",
    "in_config": "configurations",
    "in_family": "arms",
    "in_project": "projects",
    "in_run": "runs",
    "in_plan": "plans",
    "in_tensors": "checkpoints",
    "in_folder": "model folders",
    "in_captions": "data sets",
    "in_pairs": "scored pairs",
    "in_codec_trial": "an autoencoder on pictures",
    "in_step": "a probed step",
}


def looks_at(rule: AuditRule) -> list[str]:
    """What a rule knows how to judge: the methods that it defines itself."""
    return [word for method, word in LOOKS.items() if method in vars(type(rule))]


def severities(rule: AuditRule) -> str:
    return f"{rule.severity}; {rule.also}" if rule.also else rule.severity


def rule_lines() -> str:
    """The rules for a terminal, where a table of six columns cannot be read."""
    lines = [f"{len(RULES)} rules; what each costs and how it is mended: docs/audit.md, or --json"]
    for rule in RULES:
        lines += ["", f"{rule.id}  {severities(rule)}  ({rule.family}: {', '.join(looks_at(rule))})", f"   {rule.why}"]
    return "\n".join(lines)


def rule_table() -> str:
    """For the page, in Markdown."""
    lines = ["| rule | severity | looks at | why | expected size | fix |", "|---|---|---|---|---|---|"]
    family = ""
    for rule in RULES:
        if rule.family != family:
            family = rule.family
            lines.append(f"| **{family}** | | | | | |")
        size = f"{rule.size} ({rule.source})" if rule.source else rule.size
        name = f'<a id="{rule.id}"></a>`{rule.id}`'  # the anchor is what SARIF's helpUri leads to
        cells = (name, severities(rule), ", ".join(looks_at(rule)), rule.why, size, rule.fix)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines)
