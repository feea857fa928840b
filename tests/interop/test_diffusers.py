"""Export and import: the very class that users load, on the same inputs."""

import json

import pytest
import torch

from fulcrum.levers.recipes import spark
from fulcrum.spec.edit import put
from fulcrum.spec.errors import BadInput
from fulcrum.training.interop.diffusers import export, load, require_slots
from fulcrum.training.model.transformer import Backbone

PRX = pytest.importorskip("diffusers").PRXTransformer2DModel


def backbone(**changes):
    made = Backbone(
        **{
            "channels": 8,
            "patch": 2,
            "width": 32,
            "depth": 2,
            "heads": 2,
            "text_width": 12,
            **changes,
        }
    )
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.normal_(std=0.2, generator=generator)
    return made


@pytest.mark.parametrize(
    "changes",
    [{}, {"channels": 3, "patch": 4, "bottleneck": 8}, {"resolution": True}],
    ids=["latents", "pixels", "resolution"],
)
def test_an_exported_model_computes_the_same_in_diffusers_and_comes_back(changes, tmp_path):
    ours = backbone(**changes)
    theirs = PRX.from_pretrained(export(ours, tmp_path / "out"))
    x_t, t, text = torch.randn(3, ours.channels, 8, 8), torch.rand(3), torch.randn(3, 5, 12)
    mask = torch.tensor([[1, 1, 1, 1, 1], [1, 1, 0, 0, 0], [1, 0, 0, 0, 0]], dtype=torch.bool)
    with torch.no_grad():
        expected = theirs(x_t, t, text, attention_mask=mask).sample
        near = 1e-5 * expected.abs().max()
        assert (ours(x_t, t, (text, mask)).pred - expected).abs().max() <= near
        theirs.save_pretrained(tmp_path / "back")
        again = load(tmp_path / "back")
        assert (again(x_t, t, (text, mask)).pred - expected).abs().max() <= near


def test_what_has_no_slot_is_refused(tmp_path):
    ours = backbone()
    ours.mask_token = torch.nn.Parameter(torch.zeros(32))
    with pytest.raises(BadInput, match="no slot for mask_token"):
        export(ours, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_theta_that_diffusers_would_round_is_refused(tmp_path):
    with pytest.raises(BadInput, match="takes a whole theta, found 7.4"):
        export(backbone(theta=7.4), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert (
        json.loads((export(backbone(theta=7.0), tmp_path / "out") / "config.json").read_text())[
            "theta"
        ]
        == 7
    )
    with pytest.raises(BadInput, match=r"a whole theta, and this run's is 7.4 \(model.theta\)"):
        require_slots(put(spark(), "model.theta", 7.4), ())


def test_damaged_folders_say_so(tmp_path):
    with pytest.raises(BadInput, match="cannot be read"):
        load(tmp_path)
    folder = export(backbone(), tmp_path / "a")
    (folder / "diffusion_pytorch_model.safetensors").write_bytes(b"half")
    with pytest.raises(BadInput, match="cannot be read"):
        load(folder)
    folder = export(backbone(), tmp_path / "b")
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "hidden_size": 64}))
    with pytest.raises(BadInput):
        load(folder)
    (folder / "config.json").write_text(
        json.dumps({**config, "_class_name": "FluxTransformer2DModel"})
    )
    with pytest.raises(BadInput, match="other denoisers"):
        load(folder)
