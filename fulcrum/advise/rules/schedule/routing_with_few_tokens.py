"""Rule: token routing where there are few tokens."""

from fulcrum.advise.audit_rule import AuditRule, Sighting, Sightings
from fulcrum.advise.subjects.config_file import ConfigFile
from fulcrum.advise.subjects.config_tokens import image_tokens
from fulcrum.spec.run import RunSpec

FEWEST = 512  # 256 tokens lost in the published study, 1,024 won


class RoutingWithFewTokens(AuditRule):
    id = "routing-with-few-tokens"
    family = "schedule"
    gain = 0.15
    why = "with few tokens each one counts, and the blocks that skip half of them save little"
    size = "FID 18.2 to 21.6 (TREAD) and 22.6 (SPRINT) at 256 tokens; 17.4 to 14.1 at 1,024"
    source = "PRX Part 2"
    lever = "tread"
    fix = "leave routing out below some 500 tokens, or use it where the resolution is high"

    def in_run(self, run: RunSpec) -> Sightings:
        drop = getattr(run.model.route, "drop", 0.0)
        if drop and run.tokens < FEWEST:
            yield Sighting("model.route", f"{drop:.0%} of {run.tokens} tokens skip blocks", "--set model.route=dense()")

    def in_config(self, config: ConfigFile) -> Sightings:
        routed = [entry for entry in config.find(r"(tread|sprint|routing|token_drop)") if not entry.off]
        tokens = image_tokens(config)
        if routed and tokens is not None and tokens < FEWEST:
            yield Sighting(config.at(routed[0]), f"{routed[0].path} = {routed[0].value} at about {tokens:g} tokens")
