"""Rule: how many samples a metric sees depends on the number of processes."""

import ast
import re

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.python_script import Script, dotted, source_of

RANK_NAMES = re.compile(r"(world_size|num_processes|num_gpus|n_gpus|get_world_size\(\)|device_count\(\)|num_devices)$")
COUNTS = re.compile(r"(?i)(sample|image|fid|eval)")
PER = (
    r"(fid|eval|metric|valid|sampl)\w*.*(per_(gpu|device|rank|process)|(num|n|eval|subset_num|max)_batches)$"
    r"|(^|[._])(samples|images)_per_(gpu|device|rank|process)$"
)


class SamplesPerProcess(AuditRule):
    id = "samples-per-process"
    family = "evaluation"
    gain = 0.5
    why = (
        "a Fréchet distance is biased by its sample count: 2,048 samples on one GPU and 10,240 on eight give two "
        "numbers for one model"
    )
    size = "some FID points between 2,000 and 10,000 samples, more than most arms"
    source = "docs/published.md, A2; arXiv:1911.07023"
    published = "A2"
    fix = "fix the total and divide it: per_rank = total // world_size, with the total on the metric's card"

    def in_script(self, script: Script) -> Sightings:
        for node in script.nodes:
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                name = " ".join(map(dotted, targets))
                grows = isinstance(node.value, ast.BinOp) and _grows(node.value)
                if grows and COUNTS.search(name) and _is_measured(script) and "batch" not in name.lower():
                    yield Sighting(script.at(node), f"{source_of(node)}: the more processes, the more samples")

    def in_config(self, config: ConfigFile) -> Sightings:
        measured = config.find(r"fid|frechet|cmmd|kid|inception|metric")
        for entry in config.find(PER):
            if measured and entry.number is not None and entry.number > 0:
                yield Sighting(
                    config.at(entry),
                    f"{entry.path} = {entry.value} is counted per process",
                    "give the total: num_samples: 10000",
                )


def _grows(node: ast.BinOp) -> bool:
    """A product with the number of processes in it, not divided by it again."""
    parts = [part for part in ast.walk(node) if isinstance(part, ast.BinOp)]
    divided = any(isinstance(part.op, ast.FloorDiv | ast.Div) for part in parts)
    return not divided and any(
        isinstance(part.op, ast.Mult) and any(RANK_NAMES.search(dotted(side)) for side in (part.left, part.right))
        for part in parts
    )


def _is_measured(script: Script) -> bool:
    return script.mentions(r"fid$|frechet|cmmd|inception")
