"""Rule: the validation loss draws new times and noise whenever it is asked."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted, keyword, source_of

HOME = re.compile(r"(?i)^(?!test_)(\w+_)?(val|valid|validate|validation|eval|evaluate|evaluation)(_\w+)?$")
RANDOM_CALLS = ("randn_like", "randn", "rand", "rand_like", "randint")


class ValidationDrawsAnew(AuditRule):
    id = "validation-draws-anew"
    family = "evaluation"
    gain = 0.3
    why = (
        "the loss of a diffusion model depends on the drawn time far more than on the model: new draws bury what an "
        "arm does, and pairs are not pairs"
    )
    size = "noise of the size of most effects; gone when times and noise are fixed"
    source = "docs/published.md, A15"
    published = "A15"
    fix = (
        "draw with torch.Generator().manual_seed(index of the sample), the same in every evaluation, and stratify the times"
    )

    def in_script(self, script: Script) -> Sightings:
        for home in script.nodes:
            if not isinstance(home, ast.FunctionDef) or not HOME.search(home.name):
                continue
            text = ast.unparse(home)
            fixed = any(word in text for word in ("manual_seed", "fork_rng", "set_seed", "generator="))
            if fixed or "loss" not in text:
                continue
            draws = [
                node
                for node in ast.walk(home)
                if isinstance(node, ast.Call)
                and dotted(node.func).rpartition(".")[2] in RANDOM_CALLS
                and keyword(node, "generator") is None
            ]
            if draws:
                yield Sighting(
                    script.at(draws[0]), f"`{home.name}` computes a loss on {source_of(draws[0])}, drawn anew each time"
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(
            r"(val|eval)\w*[._](\w+[._])?(fixed_noise|fixed_timesteps|fix_noise|deterministic_noise|seeded)$"
        ):
            if entry.off:
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}", f"set {config.setting(entry, True)}")
