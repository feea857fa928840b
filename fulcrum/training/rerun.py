"""A run trained once more from its description alone, in a folder of its own: do the same weights
come out?"""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import torch
from pydantic import ValidationError

from fulcrum.files.paths import Damaged, remove
from fulcrum.spec.edit import key, read
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import Catalogue
from fulcrum.spec.run import FIRST_SCIENCE, SCIENCE, System
from fulcrum.training import checkpoint
from fulcrum.training.dist.machine import MACHINE, changes, machine_facts
from fulcrum.training.dist.ranks import ALONE, Ranks
from fulcrum.training.run_folder import RunEvents, RunFolder, counted_sessions
from fulcrum.training.session import Order, perform

Say = Callable[[str], None]


class Recorded(NamedTuple):
    """What a finished run says of itself."""

    order: Order  # to train it again
    weights_sha256: str
    #: why other weights would prove nothing: what is not here as it was there
    doubts: tuple[str, ...]


def recorded(
    folder: RunFolder, known: Catalogue, user_files: Mapping[str, str], place: Path
) -> Recorded:
    """What a run was trained from and with, to be trained again under `place`; refused where it
    cannot be known."""
    about, result = folder.about(), folder.result()
    if result is None:
        raise BadInput(
            f"the run {folder.path.name} is not finished: there are no weights to come out again",
            "finish it first: start its command again",
        )
    if (science := about.get("science", FIRST_SCIENCE)) != SCIENCE:
        raise BadInput(
            f"{folder.path.name} was trained by version {science} of the science, this is version"
            f" {SCIENCE}",
            "train it again with the release that trained it",
        )
    if about.get("user_files", {}) != dict(user_files):
        raise BadInput(
            f"{folder.path.name} was trained with other files of one's own",
            "name the same ones: --with FILE",
        )
    run, seed = read(about["run"], known.fillers), int(about["seed"])
    if key(run, seed, user_files) != folder.path.name:
        raise BadInput(
            f"the about.json of {folder.path.name} is not its description any more: it, or what the"
            " run reads, has changed",
            "put the data and networks back that it was trained with; fulcrum doctor says what is"
            " damaged",
        )
    events = RunEvents(folder.path, lambda text: None).read()
    system = _system(folder, events)
    order = Order(
        run,
        seed,
        str(about.get("phrase", "")),
        place,
        system,
        user_files,
        label="training again",
        trunks=folder.path.parent,
    )
    return Recorded(
        order._replace(most_skipped=1.0), result["weights_sha256"], tuple(_doubts(events, system))
    )


def trained_again(order: Order, say: Say, ranks: Ranks = ALONE) -> str:
    """The hash of the weights that come out. What was trained to its end at this place before is
    trained anew."""
    torch.set_num_threads(order.system.threads)
    place = order.out / key(order.run, order.seed, order.user_files)
    with ranks.first_goes_ahead("making room to train again"):
        if ranks.first and (place / "result.json").exists():
            remove(place)
    result: dict[str, Any] = perform(order, say, ranks=ranks)
    return str(result["weights_sha256"])


def _system(folder: RunFolder, events: list[dict[str, Any]]) -> System:
    """The one that the run was saved under last: by its newest checkpoint that is good, else by its
    last session."""
    for path in reversed(checkpoint.listing(folder.checkpoints)):
        try:
            return checkpoint.verified(path).system
        except Damaged:
            continue
    for session in reversed(counted_sessions(events)):
        try:
            return System.model_validate(session.get("system"))
        except ValidationError:
            continue
    raise BadInput(
        f"nothing in {folder.path} says with how many threads and processes it was trained: its"
        " checkpoints are gone",
        "train it again by its own command, with --out elsewhere, and compare the weights that it"
        " prints",
    )


def _doubts(events: list[dict[str, Any]], system: System) -> list[str]:
    """Bits are equal on the same kind of machine, under the same versions, and on one system from
    the first step on."""
    parts, here = counted_sessions(events), machine_facts(system)
    machines = [session[MACHINE] for session in parts if isinstance(session.get(MACHINE), dict)]
    doubts = (
        []
        if machines
        else ["the run does not say on which machine it was trained: an older version trained it"]
    )
    doubts += dict.fromkeys(change for machine in machines for change in changes(machine, here))
    systems = [session["system"] for session in parts if isinstance(session.get("system"), dict)]
    # when it was saved changes no number
    if len({str({**one, "save_every": None}) for one in systems}) > 1:
        doubts.append("it was resumed under another system on the way")
    if system.device != "cpu":
        doubts.append(
            f"its device was {system.device}, whose backward passes are not all deterministic"
        )
    return doubts
