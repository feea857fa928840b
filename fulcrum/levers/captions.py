"""Levers of captions: short, mixed, filtered and rewritten ones."""

from typing import Any, Literal

from pydantic import model_validator

from fulcrum.data.fillers import (
    Filtered,
    FilteredFolder,
    Folder,
    MixedStyles,
    OneStyle,
    RecaptionedWorld,
    World,
)
from fulcrum.levers import published as price
from fulcrum.levers.base import Built, Card, Cost, Lever, Swap
from fulcrum.levers.published import claim
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec

# --------------------------------------------------------------------------------------------------
# Caption filter: the pairs whose picture and caption fit least are left out before training.


class CaptionFilter(Swap):
    #: of a folder's pairs, a table that you give (fulcrum data score writes one); none: the world
    scores: str | None = None

    name = "caption_filter"
    slot, filler = "data.source", Filtered
    settings = ("drop",)
    card = Card(
        says=(
            "fewer, better pairs by an image-text score, as DataComp does with CLIP (named by the"
            " articles, no number). DataComp keeps the best 30 % of pairs from the web, which is"
            " drop=0.7; our tenth suits captions that are mostly true. It pays where captions are"
            " wrong: plant some with --set data.source.mislabelled=0.2"
        ),
        warns=(
            "where every caption is true it only drops the pairs that the scorer finds hard;"
            " repeats come sooner; the embedded scorer reads the embedded world only, a folder's"
            " pairs are filtered by a table of scores; that scorer learned what words mean from"
            " captions of the same world, as every text encoder here did; the teacher through which"
            " it sees was told none"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        source: Any = run.data.source
        if isinstance(source, Filtered | FilteredFolder):
            raise BadInput(
                "'caption_filter' would change nothing: the data is filtered already",
                "set data.source.drop",
            )
        if isinstance(source, World) and self.scores is None:
            return put(
                run,
                self.slot,
                self.made(**{name: getattr(source, name) for name in World.model_fields}),
            )
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
                f"the embedded scorer reads the embedded world only, not {source}: give a folder's"
                " pairs scores of your own, caption_filter(scores='FILE'); fulcrum data score"
                " writes such a table with CLIP"
            )
        gone = round(self.drop * count)
        return (
            None if 0 < gone < count else f"{self.drop:g} of {count} pairs is {gone}: none or all"
        )

    def idle(self, run: RunSpec) -> str:
        source = run.data.source
        if isinstance(source, Filtered) and not source.mislabelled:
            return (
                "every caption of this run is true, and it would only drop what is hard: it is for"
                " wrong ones"
            )
        return ""

    def witness(self, built: Built) -> bool:
        import numpy as np

        from fulcrum.data.mix import one_shaped

        filtered = [
            phase
            for phase in built.phases
            if isinstance(phase.run.data.source, Filtered | FilteredFolder)
        ]
        # a stage may have other pictures
        parts = one_shaped(built.feed.source_at(filtered[0].start)) if filtered else []
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
        before, after = (
            float(pairs.planted(np.arange(len(pairs))).mean()) for pairs in (source.inner, source)
        )
        return after < before or before in (0.0, 1.0)  # nothing planted, or nothing else


# --------------------------------------------------------------------------------------------------
# Mixed captions: a picture is told at one length whenever it is read, chosen by weight; no prompt's
# length is then new.


class MixedCaptions(Swap):
    name = "mixed_captions"
    slot, filler = "data.caption", MixedStyles
    card = Card(
        says=(
            "captions of several lengths in one run, drawn anew at each reading: a picture that"
            " comes again may be told in another way; published only in words: long captions first,"
            " then mixed lengths, which is written mixed_captions @ (0.5, 1)"
        ),
        warns=(
            "the prompts that pictures are judged by stay the run's own. The wording of a length"
            " stays the same: only which length a reading gets is drawn"
        ),
    )

    @model_validator(mode="after")
    def _mixes(self) -> "MixedCaptions":
        if sum(weight > 0 for weight in (self.long, self.medium, self.short)) < 2:
            raise ValueError("a mix has at least two lengths with a weight above zero")
        return self

    def edit(self, run: RunSpec) -> RunSpec:
        if run.data.caption == self.made():
            raise BadInput(
                "'mixed_captions' would change nothing: the captions are mixed in this way already",
                "choose other weights, or leave it out",
            )
        return super().edit(run)

    def needs(self, run: RunSpec) -> str | None:
        return (
            None
            if run.data.caption == self.made()
            else f"the run is captioned in another way: {run.data.caption}"
        )

    def cost(self, run: RunSpec) -> Cost:
        return price.of_captions(run, self.made())

    def witness(self, built: Built) -> bool:
        from fulcrum.data.captions import worded_shares

        source = built.feed.source_at(0)
        rows = min(256, len(source))
        ids = built.feed.ids_at(0, rows)
        shares, whole = (
            worded_shares(source, ids, built.feed.prompts_at(0, rows)),
            self.long + self.medium + self.short,
        )
        # six deviations
        return all(
            abs(shares[style] - getattr(self, style) / whole) < 3 / rows**0.5 for style in shares
        )


# --------------------------------------------------------------------------------------------------
# Short captions: one clause instead of everything that can be seen.


SHORT = OneStyle(style="short")


class ShortCaptions(Lever):
    #: judged by the run's own prompts, or by short ones too
    prompts: Literal["kept", "matched"] = "kept"

    name = "short_captions"
    touches = ("data.caption", "sample.prompts")
    card = Card(
        says="training captions of one clause; most of a picture is left unsaid",
        claims=(
            claim(
                "fid",
                +18.64,
                note="the published arm also changed the captioner and was judged on long prompts",
            ),
            claim("cmmd", +0.57),
            claim("dino_mmd", +0.75),
        ),
        warns=(
            "prompts=kept (the published form) also asks for what was never said in training;"
            " prompts=matched judges by short prompts, which ask for less, and is not comparable"
            " with the baseline on attributes"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        edited = put(run, "data.caption", SHORT)
        edited = put(edited, "sample.prompts", SHORT) if self.prompts == "matched" else edited
        if edited == run:
            raise BadInput(
                "'short_captions' would change nothing: the captions are short already",
                "leave it out",
            )
        return edited

    def needs(self, run: RunSpec) -> str | None:
        if run.data.caption != SHORT:
            return f"the run is captioned in another way: {run.data.caption}"
        return (
            None
            if self.prompts == "kept" or run.sample.prompts == SHORT
            else f"pictures are judged by other prompts: {run.sample.prompts}"
        )

    def cost(self, run: RunSpec) -> Cost:
        return price.of_captions(run, SHORT)

    def witness(self, built: Built) -> bool:
        from fulcrum.data.captions import worded_shares

        source = built.feed.source_at(0)
        rows = min(32, len(source))
        ids = built.feed.ids_at(0, rows)
        short = worded_shares(source, ids, built.feed.prompts_at(0, rows))["short"] == 1.0
        return short and (self.prompts == "kept" or built.run.sample.prompts == SHORT)


# --------------------------------------------------------------------------------------------------
# Recaptioned: the shipped captioner looks at every picture and writes its captions, whatever they
# were before.


class Recaptioned(Swap):
    name = "recaptioned"
    slot, filler = "data.source", RecaptionedWorld
    settings = ("drawn",)
    card = Card(
        says=(
            "captions by a network that sees the pixels alone: what long captions of one's own"
            " pictures come to, with a captioner's mistakes. Judged by the world's own captions;"
            " held against short_captions it tells how much of that loss comes back"
            " (examples/recaption.toml). Planted wrong captions are replaced too"
        ),
        warns=(
            "the captioner reads the embedded world only and learned from captions of the same"
            " world, as a real one did from captions of the web; own pictures are captioned with"
            " `fulcrum caption` and chosen by name"
        ),
    )

    def edit(self, run: RunSpec) -> RunSpec:
        source: Any = run.data.source
        if isinstance(source, RecaptionedWorld):
            raise BadInput(
                "'recaptioned' would change nothing: the pictures are captioned anew already",
                "leave it out",
            )
        if isinstance(source, World) and not isinstance(source, Filtered):
            return put(
                run,
                self.slot,
                self.made(**{name: getattr(source, name) for name in World.model_fields}),
            )
        return run  # `needs` says what is missing

    def needs(self, run: RunSpec) -> str | None:
        if isinstance(run.data.source, RecaptionedWorld):
            return None
        return (
            f"the shipped captioner reads the embedded world only, not {run.data.source}: fulcrum"
            " caption writes a store's"
        )

    def witness(self, built: Built) -> bool:
        """The prompts that are trained on are not all those that the world has for the same
        pictures."""
        from fulcrum.data.mix import RecaptionedSource, one_shaped

        here = [
            phase for phase in built.phases if isinstance(phase.run.data.source, RecaptionedWorld)
        ]
        parts = one_shaped(built.feed.source_at(here[0].start)) if here else []
        if not parts or not isinstance(parts[0], RecaptionedSource):
            return False
        source, chooser = parts[0], here[0].run.data.caption.build(None)
        ids = built.feed.ids_at(here[0].start, min(32, len(source)))
        return bool(source.prompts(chooser, ids) != source.inner.prompts(chooser, ids))
