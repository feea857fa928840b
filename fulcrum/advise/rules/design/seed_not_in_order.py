"""Rule: the seed of the run does not reach the order of the data."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted, is_constant, keyword, number, source_of

SEEDS = ("manual_seed", "set_seed", "seed_everything", "manual_seed_all")


class SeedNotInOrder(AuditRule):
    id = "seed-not-in-order"
    family = "design"
    gain = 0.2
    why = (
        "repeats that see the same pictures in the same order are not independent: the scatter between them is too "
        "small, and every difference looks real"
    )
    size = "intervals that are too narrow; by how much is not known"
    source = "docs/published.md, A4"
    published = "A4"
    fix = (
        "DistributedSampler(..., seed=args.seed), shuffle_seed: ${seed}, "
        "DataLoader(generator=torch.Generator().manual_seed(args.seed))"
    )

    def in_script(self, script: Script) -> Sightings:
        takes_seed = any(option.name == "seed" for option in script.options) or "seed" in script.words
        if not takes_seed or not (script.trains or script.named("DataLoader")):
            return
        for call in script.named("DistributedSampler"):
            seed = keyword(call, "seed")
            if (seed is None or number(seed) is not None) and not is_constant(keyword(call, "shuffle"), False):
                yield Sighting(
                    script.at(call),
                    f"{source_of(call)} orders by {'seed 0' if seed is None else 'a fixed seed'}, whatever the run's "
                    f"seed is",
                    "add seed=args.seed",
                )
        for call in script.named("DataLoader"):
            generator = keyword(call, "generator")
            made = (
                [
                    part
                    for part in script.meanings(generator, 2)
                    if isinstance(part, ast.Call) and dotted(part.func).endswith("manual_seed")
                ]
                if generator is not None
                else []
            )
            if made and made[0].args and number(made[0].args[0]) is not None:
                yield Sighting(script.at(call), f"the order comes from {source_of(made[0])}, whatever the run's seed is")

    def in_config(self, config: ConfigFile) -> Sightings:
        run = config.first(r"^(train\.|training\.|trainer\.)?(global_|random_)?seed$")
        for entry in config.find(
            r"(shuffle_seed|sampler_seed|data_seed|(data|dataset|loader|dataloader|sampler)\w*\.(\w+\.)*seed)$"
        ):
            if run and entry.number is not None and not re.search(r"\$\{", str(entry.value)):
                yield Sighting(
                    config.at(entry),
                    f"{run.path} = {run.value}, and {entry.path} is fixed at {entry.value}",
                    f"set {entry.leaf} to ${{{run.path}}}",
                )
