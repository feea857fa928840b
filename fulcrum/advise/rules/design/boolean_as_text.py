"""Rule: a switch that is written as text."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted, keyword


class BooleanAsText(AuditRule):
    id = "boolean-as-text"
    family = "design"
    gain = 0.1
    why = 'the text "False" is true in Python: what is meant to be off is on'
    size = "a setting that is the opposite of what it says; no number published"
    source = "SimpleTuner issue 1139"
    fix = "write false without quotes; in argparse use action=argparse.BooleanOptionalAction, not type=bool"

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.entries:
            if isinstance(entry.value, str) and entry.value in ("False", "false"):
                yield Sighting(
                    config.at(entry), f"{entry.path} = {entry.value!r} is text", f"write {config.setting(entry, False)}"
                )

    def in_script(self, script: Script) -> Sightings:
        for call in script.named("add_argument"):
            kind = keyword(call, "type")
            if kind is not None and dotted(kind) == "bool":
                yield Sighting(script.at(call), "type=bool makes every text true, 'False' as well")
