"""Rule: evaluation samples share their initial noise."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted

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
        "a generator that is seeded anew for every batch gives every batch the same noises: thousands of samples have"
        " the diversity of one batch"
    )
    size = "10,000 samples that share 32 noises, in the published study"
    source = "docs/published.md, A3"
    published = "A3"
    fix = "seed once before the loop, or by the sample: manual_seed(seed + first_index), with the rank's offset in it"

    def in_script(self, script: Script) -> Sightings:
        if not script.mentions(MEASURES):
            return
        for call in script.named("manual_seed", "seed_everything", "set_seed"):
            loops = [loop for loop in script.loops(call) if isinstance(loop, ast.For) and loop not in _epochs(script, call)]
            if not call.args or not loops or not _measured(script, call) or _in_comprehension(script, call):
                continue
            moving = {name for loop in loops for name in _moving(loop)}
            used = {dotted(part) for part in script.meanings(call.args[0], 2) if isinstance(part, ast.Name | ast.Attribute)}
            draws = any(
                isinstance(node, ast.Call) and dotted(node.func).rpartition(".")[2] in DRAWS for node in ast.walk(loops[0])
            )
            if draws and not used & moving:
                yield Sighting(
                    script.at(call),
                    f"line {call.lineno} seeds inside the loop of line {loops[0].lineno} with a value that does not "
                    f"change in it",
                )
        yield from self._ranks(script)

    def _ranks(self, script: Script) -> Sightings:
        """One seed for all processes, whose samples are gathered into one metric."""
        for call in script.named("manual_seed"):
            home = script.function(call)
            if home is None or script.loops(call) or not call.args or not _measured(script, call):
                continue
            body = ast.unparse(home)
            gathers = any(word in body for word in ("all_gather", "all_reduce", "gather_for_metrics", ".gather("))
            used = " ".join(dotted(part) for part in script.meanings(call.args[0], 2))
            if gathers and not any(word in used for word in RANKS):
                yield Sighting(
                    script.at(call),
                    "every process seeds alike, and their samples are gathered into one metric",
                    "add the rank: manual_seed(seed + rank)",
                )

    def in_config(self, config: ConfigFile) -> Sightings:
        for entry in config.find(r"(eval|metric|fid|sampl)\w*.*(same_noise|reseed|fixed_seed_per_batch|reset_seed)\w*$"):
            if entry.on:
                yield Sighting(config.at(entry), f"{entry.path} = {entry.value}")


def _moving(loop: ast.For) -> set[str]:
    """Names that change from one turn to the next: the loop's own, and whatever is assigned in it."""
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
        if any(isinstance(one, ast.Call) and dotted(one.func).endswith("backward") for one in ast.walk(loop))
    ]


def _in_comprehension(script: Script, node: ast.AST) -> bool:
    return any(isinstance(one, ast.ListComp | ast.GeneratorExp) for one in script.around(node))
