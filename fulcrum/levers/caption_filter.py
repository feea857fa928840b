"""Caption filter: the pairs whose picture and caption fit least are left out before training."""

from fulcrum.data.fillers import Filtered, World
from fulcrum.levers.base import Built, Card, Swap
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec


class CaptionFilter(Swap):
    name = "caption_filter"
    slot, filler = "data.source", Filtered
    settings = ("drop",)
    card = Card(
        says="fewer, better pairs by an image-text score, as DataComp does with CLIP (named by the articles, no number); "
        "pays where captions are wrong: plant some with --set data.source.mislabelled=0.2",
        warns="where every caption is true it only drops the pairs that the scorer finds hard; repeats come sooner; "
        "the scorer learned what words mean from captions of the same world, as every text encoder here did; the teacher "
        "through which it sees was told none",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        source = run.data.source
        if isinstance(source, Filtered):
            raise BadInput("'caption_filter' would change nothing: the data is filtered already", "set data.source.drop")
        if not isinstance(source, World):
            return run  # `needs` says what is missing
        return put(run, self.slot, self.made(**{name: getattr(source, name) for name in World.model_fields}))

    def needs(self, run: RunSpec) -> str | None:
        source = run.data.source
        if not isinstance(source, Filtered):
            return f"only the embedded world's pairs can be scored, not those of {source}"
        gone = round(self.drop * source.count)
        return None if 0 < gone < source.count else f"{self.drop:g} of {source.count} pairs is {gone}: none or all"

    def witness(self, built: Built) -> bool:
        import numpy as np

        source = built.feed.source_at(0)
        inner = getattr(source, "inner", None)
        if inner is None or len(source) >= len(inner):
            return False
        before, after = (float(pairs.planted(np.arange(len(pairs))).mean()) for pairs in (inner, source))
        return after < before or before in (0.0, 1.0)  # nothing planted, or nothing else
