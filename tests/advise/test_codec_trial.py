"""An autoencoder on pictures of the user's: what comes back, and what the latents are like."""

import pytest
import torch
from PIL import Image

from fulcrum.advice.audit import AuditOptions, audit
from fulcrum.advice.rules_tokenizer import LatentDeviation, ReconstructionPoor
from fulcrum.advice.tensors import CodecTrial, try_codec
from fulcrum.spec.errors import BadInput

CAPTION = (
    "a wide field of grey noise that fills the whole picture from one edge to the other, number"
    " {n}, without any object"
)


@pytest.fixture(scope="module")
def codec(tmp_path_factory):
    diffusers = pytest.importorskip("diffusers")
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("codec") / "vae"
    kinds = {
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
    }
    diffusers.AutoencoderKL(
        latent_channels=4, block_out_channels=(8, 8), norm_num_groups=4, **kinds
    ).save_pretrained(folder)
    return str(folder)


@pytest.fixture(scope="module")
def pictures(tmp_path_factory):
    folder = tmp_path_factory.mktemp("pictures")
    for number in range(3):
        Image.effect_noise((64 + number, 80), 60).convert("RGB").save(folder / f"{number}.png")
        (folder / f"{number}.txt").write_text(CAPTION.format(n=number))
    (folder / "3.png").write_bytes(b"broken")
    (folder / "3.txt").write_text(CAPTION.format(n=3))
    return str(folder)


def test_pictures_go_there_and_back(codec, pictures):
    trial = try_codec(pictures, codec, side=64)
    assert trial.names == ["0.png", "1.png", "2.png"] and len(trial.channels) == 4
    assert all(0 < one < 25 for one in trial.psnr)  # it was never trained
    assert [one.place for one in ReconstructionPoor().in_codec_trial(trial)] and trial.deviation > 0


def test_an_audit_tells_it_beside_the_captions(codec, tmp_path):
    Image.effect_noise((256, 256), 60).convert("RGB").save(tmp_path / "a.png")
    (tmp_path / "a.txt").write_text(CAPTION)
    found = {fault.rule for fault in audit(str(tmp_path), AuditOptions(codec=codec)).faults}
    assert "reconstruction-poor" in found and found <= {"reconstruction-poor", "latent-deviation"}


def test_pictures_that_are_too_small_are_not_enlarged(codec, pictures):
    with pytest.raises(BadInput, match="256 pixels or more"):
        audit(pictures, AuditOptions(codec=codec))


def test_a_good_autoencoder_raises_nothing():
    good = CodecTrial("vae", [31.0, 24.0, 33.0], ["a", "b", "c"], 1.02, [0.9, 1.1])
    assert not list(ReconstructionPoor().in_codec_trial(good)) and not list(
        LatentDeviation().in_codec_trial(good)
    )
    (fault,) = LatentDeviation().in_codec_trial(good._replace(deviation=5.5))
    assert "5.50" in fault.seen
