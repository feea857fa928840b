"""What the numbers A1 to A21 mean that rules cite: faults of the published training code, as docs/published.md has them."""

import re
from collections.abc import Iterable

CITED = re.compile(r"\bA\d{1,2}\b")
FAULTS = {
    "A1": (
        "FID is handed bytes where it expects floats between 0 and 1; multiplying by 255 wraps around, and the "
        "features are those of colour-negated pictures"
    ),
    "A2": "how many samples enter FID depends on the number of GPUs: 2,048 on one, 10,240 on eight",
    "A3": "every evaluation batch on every rank starts from the same noise seed",
    "A4": "the seed of the run does not reach the order of the data",
    "A5": "18 of 29 arms write into the baseline's checkpoint folder, with overwriting allowed",
    "A6": "checkpoints hold weights only, and nothing resumes by itself",
    "A7": (
        "some arms change two things: REPA-E (autoencoder and alignment), LPIPS (alignment and LPIPS), TREAD "
        "(routing and the sampler)"
    ),
    "A8": "the Muon arm also moves Adam's epsilon from 1e-15 to 1e-8",
    "A9": "the short-caption arm changes the captioner too, and is judged on long prompts",
    "A10": "nothing reads the setting that the BF16 arm sets",
    "A11": "one arm encodes its texts while it trains, the others read them from a cache",
    "A12": "TREAD drops 50 % of the tokens, SPRINT 75 %",
    "A13": (
        "some configurations cannot run: 16 channels into a model of 3, a perceptual loss without x-prediction, a "
        "default file that is not there"
    ),
    "A14": (
        "CMMD and DINO-MMD use a Gaussian kernel of width 10 on features of length one, where it is almost a "
        "straight line: the value is 10 times the squared distance of the means, within about 1 %"
    ),
    "A15": "the validation loss draws new times and noise whenever it is asked",
    "A16": "the teacher's input is resized by nearest neighbour, the metrics' without smoothing",
    "A17": "the projector of the alignment term is itself stored and trained in BF16",
    "A18": "FSDP's mixed precision casts the time and the rotary table to BF16 at the door of each block",
    "A19": "errors of single samples are swallowed, and the batch shrinks silently",
    "A20": "FLUX.2's autoencoder is loaded through FLUX.1's class: wrong scale, batch-norm statistics dropped",
    "A21": (
        "the iREPA arm takes from each token the mean over its own features (about zero after a LayerNorm) instead "
        "of the mean over tokens, and projects by attention instead of a convolution"
    ),
}


def explained(texts: Iterable[str]) -> list[str]:
    """A line for each number that the texts cite."""
    cited = {number for text in texts for number in CITED.findall(text)}
    return [f"{number}: {fault}" for number, fault in FAULTS.items() if number in cited]
