"""Real data: photographs instead of clean drawings."""

from fulcrum.data.fillers import Folder, World
from fulcrum.levers.base import Built, Card, Lever
from fulcrum.levers.shared.published import claim
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec

SCOPE = "1 M real instead of 1 M synthetic images, 256 px latents, 1.2 B parameters, 100k steps"


class RealData(Lever):
    source: str | None = None  # your own real pictures, a folder that was imported; none: the world's

    name = "real_data"
    touches = ("data.source",)
    card = Card(
        says="the world's own scenes as photographs: light, grain, blur and dust instead of clean colours; or a folder of "
        "real pictures in the place of a folder of synthetic ones",
        claims=(
            claim("fid", -1.6, SCOPE, note="18.20 to 16.6: the better FID came with the worse CMMD and DINO-MMD"),
            claim("cmmd", +0.09, SCOPE),
            claim("dino_mmd", +0.07, SCOPE),
        ),
        warns="the recipes are real by default: its baseline is made with --set data.source.domain=synthetic. In the world "
        "the scenes stay the same; published, and in folders, other pictures with other captions take their place. Both "
        "arms are judged by what judges the baseline: for folders let data.source.judged name the real ones",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        source = run.data.source
        if isinstance(source, World) and self.source is None:
            if source.domain == "real":
                raise BadInput(
                    "'real_data' would change nothing: the data is real already",
                    "for the synthetic baseline that it is held against add --set data.source.domain=synthetic",
                )
            return put(run, "data.source.domain", "real")
        if isinstance(source, Folder) and self.source is not None:
            judged = source.judged or source.path
            return put(run, "data.source", Folder(path=self.source, judged=judged))
        return run  # `needs` says what is missing

    def needs(self, run: RunSpec) -> str | None:
        source = run.data.source
        if isinstance(source, World):
            return None if self.source is None else "the embedded world has real pictures of its own: leave `source` out"
        if self.source is None:
            return f"{source} has no real domain: name your own, real_data(source='FOLDER')"
        if not isinstance(source, Folder):
            return f"a folder takes the place of a folder, not of {source}"
        if source.path != Folder(path=self.source).path:
            return "something else replaced the pictures"
        source.caption_names()  # refuses what is no imported folder
        return None

    def witness(self, built: Built) -> bool:
        source = built.feed.source_at(built.run.budget.images - 1)  # a stage may be synthetic before
        if self.source is not None:
            return bool(source.fingerprint() == Folder(path=self.source).build(built).fingerprint())
        return bool(getattr(getattr(source, "inner", source), "domain", "") == "real")
