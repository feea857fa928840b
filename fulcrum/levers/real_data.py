"""Real data: photographs of the scenes instead of clean drawings."""

from fulcrum.data.fillers import World
from fulcrum.levers.base import Built, Card, Lever
from fulcrum.levers.shared.published import claim
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec

SCOPE = "1 M real instead of 1 M synthetic images, 256 px latents, 1.2 B parameters, 100k steps"


class RealData(Lever):
    name = "real_data"
    touches = ("data.source.domain",)
    card = Card(
        says="the run's own scenes as photographs: light, grain, blur and dust instead of clean colours",
        claims=(
            claim("fid", -1.6, SCOPE, note="18.20 to 16.6: the better FID came with the worse CMMD and DINO-MMD"),
            claim("cmmd", +0.09, SCOPE),
            claim("dino_mmd", +0.07, SCOPE),
        ),
        warns="the recipes are real by default: its baseline is made with --set data.source.domain=synthetic",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        source = run.data.source
        if isinstance(source, World) and source.domain == "real":
            raise BadInput(
                "'real_data' would change nothing: the data is real already",
                "for the synthetic baseline that it is held against add --set data.source.domain=synthetic",
            )
        return put(run, "data.source.domain", "real") if isinstance(source, World) else run

    def needs(self, run: RunSpec) -> str | None:
        source = run.data.source
        return None if isinstance(source, World) else f"the data source has no synthetic and real domain: {source}"

    def witness(self, built: Built) -> bool:
        source = built.feed.source_at(built.run.budget.images - 1)  # a stage may be synthetic before
        return bool(getattr(source, "inner", source).domain == "real")
