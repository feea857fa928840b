"""FLOPs of every part of a run for one image, what they add up to, and such numbers in words."""

from fulcrum.spec.record import Frozen


class TrainingFlops(Frozen):
    """FLOPs of what every step of training does, for one image."""

    denoiser: float  # forward and backward
    terms: dict[str, float] = {}  # networks of the loss, forward and backward, as their formulas say
    optimizer: float = 0.0  # Muon's iterations; what touches each parameter a few times counts as nothing
    tuned_codec: float = 0.0  # a codec that is trained too, forward and backward
    uncounted: tuple[str, ...] = ()  # a user's terms that give no `flops`

    def training(self) -> float:
        """One image of training; latents, texts and teacher tokens are read from disk."""
        return self.denoiser + sum(self.terms.values()) + self.optimizer + self.tuned_codec


class PartFlops(TrainingFlops):
    """With the frozen networks, which run once per image where their results are kept, and with evaluation."""

    codec: float  # encode
    decode: float
    text: float
    teachers: dict[str, float]
    evaluation: float  # draw and decode a picture, then look at it with features and judge

    def totals(self, images: int, pictures: int, drawn: int = 0) -> dict[str, float]:
        """By part: training looks at `images`, frozen networks once at each of the `pictures`, evaluation draws `drawn`."""
        named = {
            "denoiser": self.denoiser * images,
            **{f"term {name}": each * images for name, each in self.terms.items()},
            "optimizer": self.optimizer * images,
            "tuned codec": self.tuned_codec * images,
            "codec": self.codec * pictures,
            "text": self.text * pictures,
            **{f"teacher {name}": each * pictures for name, each in self.teachers.items()},
            "evaluation": self.evaluation * drawn,
        }
        return {name: value for name, value in named.items() if value}


def amount(value: float) -> str:
    """12.3 G"""
    for size, letter in ((1e21, "Z"), (1e18, "E"), (1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g} {letter}"
    return f"{value:.3g} "
