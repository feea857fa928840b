"""What the levers that swap the embedded codec for another shipped one share: the edit, and that nothing else undid it."""

from typing import ClassVar

from fulcrum.levers.base import Lever
from fulcrum.networks.fillers import KL
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import RunSpec


class ShippedCodec(Lever):
    """A lever that puts a shipped part in the place of the run's KL codec; a subclass says which, and its channels."""

    touches = ("encode.codec",)
    asset: ClassVar[str]
    channels: ClassVar[int]
    verb: ClassVar[str] = "swaps"

    def edit(self, run: RunSpec) -> RunSpec:
        codec = run.encode.codec
        if not isinstance(codec, KL):
            raise BadInput(f"'{self.name}' {self.verb} an embedded codec, and this run has '{codec.kind}'")
        return put(run, "encode.codec", type(codec)(**{**dict(codec), "asset": self.asset, "channels": self.channels}))

    def needs(self, run: RunSpec) -> str | None:
        codec = run.encode.codec
        swapped = isinstance(codec, KL) and codec.asset == self.asset
        return None if swapped else f"something else replaced the codec by {codec}"
