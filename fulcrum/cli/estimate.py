"""fulcrum estimate: what a run would take on GPUs that one does not have yet."""

from typing import Annotated

import typer

from fulcrum.cli.options import Files, Images, Json, Set, emit
from fulcrum.spec.errors import BadInput


def register(app: typer.Typer) -> None:
    app.command(epilog='Example: fulcrum estimate "prx_256 + tread" --gpus 8xH100')(estimate)


def estimate(
    phrase: Annotated[
        str | None,
        typer.Argument(
            help='A recipe and levers: "prx_256 + tread". Without it: the GPUs that are known.'
        ),
    ] = None,
    gpus: Annotated[
        str, typer.Option(metavar="COUNTxNAME", help="How many of which: 8xH100, 64xH200, RTX4090.")
    ] = "8xH100",
    price: Annotated[
        float | None,
        typer.Option(
            min=0.0, metavar="PER_HOUR", help="What an hour of one GPU costs; else an assumption."
        ),
    ] = None,
    microbatch: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="ROWS", help="Rows of one backward pass on a GPU; else as many as fit."
        ),
    ] = None,
    recompute: Annotated[
        str | None,
        typer.Option(
            metavar="none|selective|full",
            help=(
                "Blocks whose activations are computed again: none, every other, all; else only if"
                " nothing fits without."
            ),
        ),
    ] = None,
    mesh: Annotated[
        str | None,
        typer.Option(
            metavar="ddp|fsdp|RxS",
            help=(
                "How the GPUs share the weights, as in fulcrum train; else those of a machine share"
                " them, if that fits."
            ),
        ),
    ] = None,
    text_tokens: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=100_000,
            metavar="TOKENS",
            help="Of a caption; else all that the text encoder may give.",
        ),
    ] = None,
    images: Images = None,
    settings: Set = None,
    levers: Files = None,
    published: Annotated[
        bool, typer.Option("--published", help="Hold the estimate against the published table.")
    ] = False,
    as_json: Json = False,
) -> None:
    """What a run would take on GPUs that you need not have: step time, images a second, hours,
    price, memory and disk.

    Everything is computed from the run's description; no GPU, no picture and no pretrained part is
    touched. Products are counted and taken at a stated share of the GPU's peak, bytes at its
    bandwidth; what is neither (reading pictures, starting kernels) is taken from the one published
    step that the estimate is calibrated with. --published shows how far each ratio of the published
    table is met. Prices are an assumption unless you say --price.
    """
    from fulcrum.cli.train import estimate_words, gpu_words
    from fulcrum.levers.catalog import read_phrase
    from fulcrum.spec.speed import GPUS, read_machine
    from fulcrum.training.dist.choose_system import asked_system
    from fulcrum.training.estimate import estimate as estimated

    machine, system = (
        read_machine(gpus),
        asked_system({"mesh": mesh, "recompute": recompute}, "fulcrum estimate --help"),
    )
    if published and phrase is not None:
        raise BadInput(
            f"--published is a table of its own, without '{phrase}'",
            "write: fulcrum estimate --published",
        )
    if published:
        from fulcrum.advice.published import compared, compared_words

        rows = compared()
        emit([row._asdict() for row in rows], as_json, compared_words(rows))
        return
    if phrase is None:
        emit({name: gpu._asdict() for name, gpu in GPUS.items()}, as_json, gpu_words())
        return
    run = read_phrase(phrase, levers or (), settings or (), images)[0].run
    way = None if recompute is None else system.recompute
    sizes = estimated(run, machine, price, microbatch, way, text_tokens, mesh)
    emit(sizes, as_json, estimate_words(sizes, phrase))
