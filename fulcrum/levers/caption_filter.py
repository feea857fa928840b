"""Caption filter: the pairs whose picture and caption fit least are left out before training."""

from typing import Any

from fulcrum.data.fillers import Filtered, FilteredFolder, Folder, World
from fulcrum.levers.base import Built, Card, Swap
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec


class CaptionFilter(Swap):
    scores: str | None = None  # of a folder's pairs, a table that you give (fulcrum data score writes one); none: the world

    name = "caption_filter"
    slot, filler = "data.source", Filtered
    settings = ("drop",)
    card = Card(
        says="fewer, better pairs by an image-text score, as DataComp does with CLIP (named by the articles, no number). "
        "DataComp keeps the best 30 % of pairs from the web, which is drop=0.7; our tenth suits captions that are mostly "
        "true. It pays where captions are wrong: plant some with --set data.source.mislabelled=0.2",
        warns="where every caption is true it only drops the pairs that the scorer finds hard; repeats come sooner; the "
        "embedded scorer reads the embedded world only, a folder's pairs are filtered by a table of scores; that scorer "
        "learned what words mean from captions of the same world, as every text encoder here did; the teacher through "
        "which it sees was told none",
    )

    def edit(self, run: RunSpec) -> RunSpec:
        source: Any = run.data.source
        if isinstance(source, Filtered | FilteredFolder):
            raise BadInput("'caption_filter' would change nothing: the data is filtered already", "set data.source.drop")
        if isinstance(source, World) and self.scores is None:
            return put(run, self.slot, self.made(**{name: getattr(source, name) for name in World.model_fields}))
        if isinstance(source, Folder) and self.scores is not None:
            own = {name: getattr(source, name) for name in Folder.model_fields}
            return put(run, self.slot, FilteredFolder(**own, scores=self.scores, drop=self.drop))
        return run  # `needs` says what is missing

    def needs(self, run: RunSpec) -> str | None:
        source = run.data.source
        if isinstance(source, Filtered):
            count = source.count
        elif isinstance(source, FilteredFolder):
            from fulcrum.data.stores.derived_store import require_scored

            count = require_scored(source)
        elif isinstance(source, World):
            return "a table of scores is for a folder's pairs: leave `scores` out"
        else:
            return (
                f"the embedded scorer reads the embedded world only, not {source}: give a folder's pairs scores of your "
                "own, caption_filter(scores='FILE'); fulcrum data score writes such a table with CLIP"
            )
        gone = round(self.drop * count)
        return None if 0 < gone < count else f"{self.drop:g} of {count} pairs is {gone}: none or all"

    def idle(self, run: RunSpec) -> str:
        source = run.data.source
        if isinstance(source, Filtered) and not source.mislabelled:
            return "every caption of this run is true, and it would only drop what is hard: it is for wrong ones"
        return ""

    def witness(self, built: Built) -> bool:
        import numpy as np

        from fulcrum.data.mix import one_shaped

        filtered = [phase for phase in built.phases if isinstance(phase.run.data.source, Filtered | FilteredFolder)]
        parts = one_shaped(built.feed.source_at(filtered[0].start)) if filtered else []  # a stage may have other pictures
        if not parts or any(getattr(part, "inner", None) is None for part in parts):
            return False
        if self.scores is not None:  # what went is nowhere better than what stayed
            scores = filtered[0].run.data.source.row_scores()
            kept = np.concatenate([part.inner.numbers[part.kept] for part in parts])
            gone = np.setdiff1d(np.concatenate([part.inner.numbers for part in parts]), kept)
            return bool(len(gone) and scores[gone].max() <= scores[kept].min())
        (source,) = parts
        if len(source) >= len(source.inner):
            return False
        before, after = (float(pairs.planted(np.arange(len(pairs))).mean()) for pairs in (source.inner, source))
        return after < before or before in (0.0, 1.0)  # nothing planted, or nothing else
