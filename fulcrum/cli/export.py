"""fulcrum export: a finished run as a folder that diffusers draws with, or the weights of any run
as one file."""

import importlib.util
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from fulcrum.cli.options import OUT, Files, Json, Out, RunName, catalogue, emit, say
from fulcrum.cli.train import finish_first
from fulcrum.spec.errors import BadInput, FulcrumError, install_extra
from fulcrum.spec.progress import awaited

if TYPE_CHECKING:
    from fulcrum.spec.phrase import Catalogue
    from fulcrum.spec.run import RunSpec
    from fulcrum.training.painter import Painter
    from fulcrum.training.run_folder import RunFolder


SEEDS = 16  # whose noise is written, unless another number is asked for
KEPT = {"averaged": "averaged", "last": "the last ones, not averaged"}
BF16 = (
    "The denoiser's weights are rounded to bf16, which keeps three decimal digits: pictures differ"
    " from those of the run, the one that the card draws by up to {levels} of 255, and what was"
    " measured belongs to the unrounded weights."
)
OTHER_PRODUCTS = (
    "It was trained and is drawn here with {what} in bf16; diffusers computes in fp32 unless told"
    " otherwise."
)


def register(app: typer.Typer) -> None:
    app.command(epilog="Example: fulcrum export RUN my_pipeline")(export)


def export(
    run: RunName,
    folder: Annotated[
        Path,
        typer.Argument(help="A new folder for the pipeline; FILE.safetensors: the weights alone."),
    ],
    weights: Annotated[
        Literal["averaged", "last"],
        typer.Option(
            help=(
                "Of a run with EMA: its averaged weights, which it draws with, or the last ones,"
                " without EMA."
            )
        ),
    ] = "averaged",
    dtype: Annotated[
        Literal["fp32", "bf16"],
        typer.Option(help="Of the denoiser's weights; bf16 halves the file and rounds them."),
    ] = "fp32",
    seeds: Annotated[
        int, typer.Option(min=1, max=10_000, help="Write the noise of so many seeds, from 0 on.")
    ] = SEEDS,
    licence: Annotated[
        str, typer.Option(help="Of the weights, for the model card: apache-2.0.")
    ] = "",
    adapter: Annotated[
        bool,
        typer.Option(
            "--adapter",
            help=(
                "Of a run with lora: only what learned, for peft to put beside the pipeline it"
                " began from."
            ),
        ),
    ] = False,
    push: Annotated[
        str | None,
        typer.Option(
            metavar="hub:ORG/NAME",
            help="Also send the folder to the hub, private, with your own token.",
        ),
    ] = None,
    out: Out = OUT,
    levers: Files = None,
    as_json: Json = False,
) -> None:
    """Write a finished run as a whole pipeline: DiffusionPipeline.from_pretrained(FOLDER) draws the
    same pictures.

    To FILE.safetensors go the whole weights of the newest checkpoint, also of a run that still
    trains, and nothing else. What lora learned is merged into the weights; with --adapter the
    folder holds that alone (docs/fine-tune.md).

    The folder holds denoiser, scheduler, text encoder, tokenizer, codec, the noise of some seeds
    and a model card (README.md) with the call to draw with. What has no place in diffusers is
    refused: docs/export.md
    """
    from fulcrum.files.atomic import folder_atomic
    from fulcrum.spec.edit import read
    from fulcrum.training.interop.diffusers import require_slots
    from fulcrum.training.interop.export import hub_name
    from fulcrum.training.interop.export import push as send
    from fulcrum.training.run_folder import RunFolder
    from fulcrum.training.trained_run import find_run, open_painter

    repo = None if push is None else hub_name(push)
    source = RunFolder(find_run(run, out))
    _require_no_checkpoints(folder)
    if folder.suffix.lower() == ".safetensors":
        _refuse_beside_weights(adapter, push)
        facts = _write_weights(source, folder, weights, dtype)
        emit(
            facts,
            as_json,
            f"{folder} holds the {facts['tensors']} tensors that {source.path.name} draws with,"
            " whole",
        )
        return
    if source.result() is None:
        raise BadInput(
            f"the run {source.path.name} is not finished", finish_first(source, out, levers or ())
        )
    _require_new(folder)
    known = catalogue(levers)[0]
    named = _levers(source.about()["phrase"], known)
    spec = read(source.about()["run"], known.fillers)
    require_slots(spec, named)
    if adapter:
        _require_adapter(spec, dtype)
    painter = open_painter(source, known.fillers, averaged=weights == "averaged")
    # a staged one holds its lever
    says = {str(lever): str(getattr(lever, "lever", lever).card.says) for lever in named}
    with awaited(f"writing the parts of {folder}", say), folder_atomic(folder) as aside:
        facts = _write(painter, source, aside, says, weights, dtype, seeds, licence, adapter)
    extra = "lora" if adapter else "diffusers"
    missing = [name for name in facts["needs"] if importlib.util.find_spec(name) is None]
    lines = [
        (
            f"PeftModel.from_pretrained(pipeline.transformer, '{folder}') puts it beside"
            f" {facts['base']}"
            if adapter
            else f"DiffusionPipeline.from_pretrained('{folder}') loads this {facts['pipeline']}"
        ),
        f"{folder / 'README.md'} is its model card and has the call that draws with it",
        *(
            [f"to draw with it, {', '.join(missing)} must be installed: {install_extra(extra)}"]
            if missing
            else []
        ),
        *facts["cautions"],
    ]
    if repo is not None:
        facts["address"] = send(folder, repo, f"{source.about()['phrase']}, run {source.path.name}")
        lines.append(f"sent to {facts['address']}")
    emit({"folder": str(folder), **facts, "missing": missing}, as_json, "\n".join(lines))


def _refuse_beside_weights(adapter: bool, push: str | None) -> None:
    if adapter or push is not None:
        raise BadInput(
            "a file of weights is no pipeline and no adapter",
            "give a folder, or leave these options out",
        )


def _write_weights(source: "RunFolder", file: Path, weights: str, dtype: str) -> dict[str, Any]:
    """The weights that a run draws with, in one file; however many processes wrote its
    checkpoint."""
    import os

    import torch
    from safetensors.torch import save_file

    from fulcrum.files.atomic import atomic_path
    from fulcrum.files.paths import explained
    from fulcrum.training.model.adapter import merged
    from fulcrum.training.start_weights import trained_weights

    if os.path.lexists(file):
        raise BadInput(f"{file} exists", "choose a new name: nothing is overwritten")
    kept = merged(trained_weights(source, weights == "averaged"))
    if dtype == "bf16":
        kept = {
            name: value.to(torch.bfloat16) if value.is_floating_point() else value
            for name, value in kept.items()
        }
    with explained("write", file, kind=BadInput), atomic_path(file) as aside:
        save_file(
            {name: value.contiguous() for name, value in kept.items()},
            aside,
            {"run": source.path.name},
        )
    return {"file": str(file), "run": source.path.name, "tensors": len(kept)}


def _require_no_checkpoints(place: Path) -> None:
    """Among a run's checkpoints lies only what a training has saved: anything else would be taken
    for one, or swept."""
    from fulcrum.training.kept_weights import KEPT

    for above in place.absolute().resolve().parents:
        if above.name in ("checkpoints", KEPT) and (above.parent / "about.json").is_file():
            raise BadInput(
                f"{place} lies in {above}, where a run keeps its own",
                "choose a place outside of that folder",
            )


def _require_new(folder: Path) -> None:
    if folder.is_symlink() or (folder.exists() and (not folder.is_dir() or any(folder.iterdir()))):
        raise BadInput(
            f"{folder} exists and is not an empty folder",
            "choose a new folder: nothing is overwritten",
        )


def _require_adapter(run: "RunSpec", dtype: str) -> None:
    from fulcrum.training.interop.export import require_adapter

    require_adapter(run)
    if dtype != "fp32":
        raise BadInput("an adapter is written in fp32: it is small", "leave --dtype out")


def _levers(phrase: str, known: "Catalogue") -> tuple[Any, ...]:
    """Those that the run was trained with; none where only a file of the user's knows the
    phrase."""
    from fulcrum.spec.phrase import parse

    try:
        return parse(phrase.partition(" --set ")[0], known).levers
    except FulcrumError:
        return ()


def _write(
    painter: "Painter",
    source: "RunFolder",
    folder: Path,
    levers: dict[str, str],
    weights: str,
    dtype: str,
    seeds: int,
    licence: str,
    adapter: bool = False,
) -> dict[str, Any]:
    """Parts, card and what the card speaks of."""
    import torch

    from fulcrum.files.atomic import write_atomic, write_json
    from fulcrum.measure.evaluation import kept_metrics
    from fulcrum.spec.errors import inert
    from fulcrum.training.interop.diffusers import pipeline_of
    from fulcrum.training.interop.export import (
        NOISE,
        CardFacts,
        PipelineParts,
        base_line,
        base_of,
        description,
        export_adapter,
        export_noises,
        export_pipeline,
        model_card,
    )
    from fulcrum.training.start_weights import trained_weights

    run, result = painter.run, source.result() or {}
    parts = PipelineParts(run, painter.backbone, painter.codec, painter.text)
    if adapter:
        export_adapter(trained_weights(source, weights == "averaged"), run, folder)
        written = export_noises(run, folder / NOISE, seeds)
    else:
        written = export_pipeline(
            parts, folder, seeds, torch.bfloat16 if dtype == "bf16" else torch.float32
        )
    halves = [
        name
        for name in ("compute", "norm", "softmax", "rope", "time")
        if getattr(run.precision, name) == "bf16"
    ]
    facts = CardFacts(
        run=run,
        about=source.about(),
        result=result,
        pipeline=pipeline_of(run),
        seeds=written,
        longest=parts.longest,
        text_class=parts.text_class,
        weights=(
            f"{KEPT[weights] if run.average.kind != 'last_weights' else 'the last ones'}, {dtype}"
        ),
        levers=levers,
        metrics=kept_metrics(source) if weights == "averaged" else {},
        data=_data_card(run),
        licences={
            name: getattr(part, "card", {}).get("licence", "Apache-2.0, with Fulcrum")
            for name, part in {"codec": painter.codec, "text encoder": painter.text}.items()
            if run.encode.codec.kind != "pixels" or name != "codec"
        },
        licence=licence,
        cautions=[
            *([OTHER_PRODUCTS.format(what=", ".join(halves))] if halves else []),
            *([BF16.format(levels=_levels_lost(painter))] if dtype == "bf16" else []),
        ],
        base=base_of(run) if adapter else "",
        base_line=base_line(run) if adapter else "",
    )
    write_atomic(folder / "README.md", inert(model_card(facts)))
    write_atomic(folder / "run.json", description(facts.about))
    if facts.metrics:
        write_json(folder / "metrics.json", facts.metrics)
    if facts.data:
        write_json(folder / "data_card.json", facts.data)
    return {
        "pipeline": facts.pipeline,
        "seeds": written,
        "needs": list(facts.needs),
        "base": facts.base,
        "metrics": sorted(facts.metrics),
        "cautions": list(facts.cautions),
    }


def _levels_lost(painter: "Painter") -> int:
    """How far a picture is off, of 255, when the denoiser's weights are rounded to bf16."""
    import torch

    from fulcrum.training.average import CODEC
    from fulcrum.training.interop.export import prompt_of
    from fulcrum.training.painter import Painter
    from fulcrum.training.trained_run import draw

    rounded = {
        name: value.to(torch.bfloat16).to(value.dtype)
        for name, value in painter.backbone.state_dict().items()
    }
    codec = painter.codec.state_dict() if painter.run.encode.codec.trained else {}
    weights = rounded | {CODEC + name: value for name, value in codec.items()}
    other = Painter(painter.run, weights, painter.codec, painter.text)
    before, after = (draw(one, [prompt_of(painter.run)], 0).int() for one in (painter, other))
    return int((before - after).abs().max())


def _data_card(run: Any) -> dict[str, Any]:
    """Of imported pictures, if they still lie where they did."""
    from fulcrum.files.sealed import read_json
    from fulcrum.training.interop.export import placeless_card

    path = getattr(run.data.source, "path", "")
    try:
        return dict(placeless_card(read_json(Path(path) / "card.json", ""))) if path else {}
    except (FulcrumError, OSError):
        return {}
