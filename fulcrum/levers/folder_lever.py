"""What the levers that put in a full-size network share: its folder, checked when the phrase is
read, and its class.

Without a path such a lever only describes the run: its sizes, costs and what it changes; training
asks for the folder.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from fulcrum.levers import published as price
from fulcrum.levers.base import Built, Cost, Lever
from fulcrum.networks.fillers import FolderCodec, FolderTeacher
from fulcrum.networks.pretrained.config_facts import (
    CODEC_PARTS,
    TEACHER_PARTS,
    codec_facts,
    teacher_facts,
)
from fulcrum.networks.pretrained.folder import locate
from fulcrum.spec.edit import put, put_all
from fulcrum.spec.errors import BadInput
from fulcrum.spec.flops import denoiser_training_flops, parameters
from fulcrum.spec.run import RunSpec
from fulcrum.spec.stage import phases


class FromFolder(Lever):
    """A lever with the folder of a network; a subclass says of which class."""

    path: str = ""  # a folder, org/name in the hub's cache, or hub:org/name; none: only described

    network: ClassVar[str]  # the class that it is about
    also: ClassVar[tuple[str, ...]] = ()  # others that hold the same network

    def require_class(self, parts: tuple[str, ...], facts: Callable[[Path], Any]) -> None:
        """Refuse a folder of another class, when the phrase is read."""
        folder = locate(self.path, parts)
        if (network := facts(folder).network) not in (self.network, *self.also):
            raise BadInput(
                f"'{self.name}' is about {self.network}, but {folder} holds {network}",
                f"give a folder of that class: {self.name}(path='FOLDER')",
            )


class CodecFromFolder(FromFolder):
    """A lever that puts one of diffusers' autoencoders in the place of the run's codec; tokens stay
    as many."""

    touches = ("encode.codec", "model.patch")
    title: ClassVar[str]
    channels: ClassVar[int]
    stride: ClassVar[int] = 8

    def edit(self, run: RunSpec) -> RunSpec:
        token = run.model.patch * run.encode.codec.stride
        if token % self.stride:
            raise BadInput(
                f"'{self.name}' has cells of {self.stride} px, of which the run's tokens of {token}"
                " px cannot be made",
                "choose model.patch so that a token is a multiple of that",
            )
        if self.path:
            self.require_class(CODEC_PARTS, codec_facts)
        codec = FolderCodec(
            name=self.title,
            stride=self.stride,
            channels=self.channels,
            network=self.network,
            path=self.path,
        )
        return put_all(run, [("encode.codec", codec), ("model.patch", token // self.stride)])

    def needs(self, run: RunSpec) -> str | None:
        codec = run.encode.codec
        own = isinstance(codec, FolderCodec) and (codec.network, codec.channels) == (
            self.network,
            self.channels,
        )
        return None if own else f"something else replaced the codec by {codec}"

    def cost(self, run: RunSpec) -> Cost:
        """Of the denoiser's other patches; latents come from the cache."""
        return price.of_denoiser(run, self.edit(run))

    def witness(self, built: Built) -> bool:
        codec = built.feed.codec()
        return bool(
            getattr(codec, "name", "") == self.network
            and built.step.backbone.channels == self.channels
        )


class TeacherFromFolder(FromFolder):
    """A lever that lets another network teach in the place of one that some term of the loss
    reads."""

    instead_of: str = "world"  # the teacher whose place it takes

    width: ClassVar[int] = 768  # of a ViT-B, if no folder is given
    patch: ClassVar[int] = 16

    def edit(self, run: RunSpec) -> RunSpec:
        if self.path:
            self.require_class(TEACHER_PARTS, teacher_facts)
        sizes = {} if self.path else {"width": self.width, "patch": self.patch}
        given = {"name": self.name, "path": self.path, "instead_of": self.instead_of, **sizes}
        return put(run, f"encode.teachers.{self.name}", FolderTeacher.model_validate(given))

    def needs(self, run: RunSpec) -> str | None:
        runs = [phase.run for phase in phases(run)]
        if not any(self.instead_of in term.teachers() for one in runs for term in one.terms):
            return (
                f"no term of the loss reads the teacher '{self.instead_of}', whose place it takes:"
                " add a term that does, such as repa or irepa"
            )
        teacher = run.encode.teacher(self.instead_of)
        if teacher is None or teacher.name != self.name:
            return f"another takes the place of the teacher '{self.instead_of}': {teacher}"
        problems = (term.problem(run) for term in run.terms if term.teachers())
        return next(filter(None, problems), None)

    def cost(self, run: RunSpec) -> Cost:
        """Of projectors that aim at wider tokens; the tokens themselves come from the cache."""
        before = put(
            run,
            "encode.teachers",
            tuple(one for one in run.encode.teachers if one.name != self.name),
        )
        after = self.edit(before)
        (flops, learned), (flops_after, learned_after) = _terms(before), _terms(after)
        return Cost(
            flops=(denoiser_training_flops(run) + flops_after)
            / (denoiser_training_flops(run) + flops),
            memory=price.memory_ratio(before, after),
            parameters=(parameters(run) + learned_after) / (parameters(run) + learned),
        )

    def witness(self, built: Built) -> bool:
        networks = [one.teacher for one in built.feed.teachers().values()]
        return any(
            getattr(one, "facts", None) and one.facts.network in (self.network, *self.also)
            for one in networks
        )


def _terms(run: RunSpec) -> tuple[float, int]:
    """FLOPs and parameters of the terms that have a teacher."""
    terms = [term for term in run.terms if term.teachers()]
    flops = sum(term.flops(run) or 0.0 for term in terms)
    return flops, sum(term.parameters(run) for term in terms)
