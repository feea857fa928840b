"""Pretrained parts: the classes that users load, from folders, through training, drawing and the
key."""

import json
import shutil

import numpy as np
import pytest
import torch

from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.edit import key, read
from fulcrum.spec.errors import BadInput
from fulcrum.spec.run import System
from fulcrum.training.painter import Painter
from fulcrum.training.run_folder import RunFolder
from fulcrum.training.session import Order, perform
from fulcrum.training.start_weights import trained_weights

diffusers, transformers = pytest.importorskip("diffusers"), pytest.importorskip("transformers")
SHORT = ("data.source.count=16", "budget.images=24", "model.depth=2", "data.caption.style=short")
LAYOUTS = {"kl": (2, 4), "channels": (2, 4), "flux2": (2, 4), "dc": (4, 4), "tiny": (4, 4)}


def trained(run, out):
    """Three steps, then a picture with what the run's own description says: as `fulcrum train` and
    `sample` do."""
    lines = []
    result = perform(Order(run, 0, "test", out, System(), quiet=True), lines.append)
    folder = RunFolder(out / result["key"])
    again = read(folder.about()["run"], CATALOG.fillers)
    assert again == run
    painter = Painter(
        again,
        trained_weights(folder),
        again.encode.codec.build(None),
        again.encode.text.build(None),
    )
    picture = torch.cat(list(painter.pictures(["a red circle", "", "a blue ring"], 0)))
    assert picture.shape == (3, 3, 32, 32) and picture.dtype == torch.uint8
    return result, lines


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_codec_of_diffusers_trains_and_draws(name, part, tiny, tmp_path):
    run = tiny("spark", *SHORT, f"encode.codec=pretrained_codec(path='{part(name)}')")
    assert (run.encode.codec.stride, run.encode.codec.channels) == LAYOUTS[name]
    result, said = trained(run, tmp_path)
    assert result["images"] == 24
    # the self-check is told
    assert any(run.encode.codec.network in line and "dB" in line for line in said)


def test_latents_are_what_the_ecosystem_normalises_them_to(part):
    """The formulas of diffusers' own pipelines, written out."""
    from diffusers.pipelines.flux2.pipeline_flux2 import Flux2Pipeline

    from fulcrum.networks.pretrained.codec import load_codec

    pixels = torch.rand(2, 3, 32, 32) * 2 - 1
    with torch.no_grad():
        raw = {
            name: diffusers.__dict__["AutoencoderKL" if name != "flux2" else "AutoencoderKLFlux2"]
            .from_pretrained(part(name))
            .encode(pixels)
            .latent_dist.mode()
            for name in ("kl", "channels", "flux2")
        }
    ours = {name: load_codec(str(part(name)), 2, 4) for name in raw}
    torch.testing.assert_close(ours["kl"].encode(pixels), (raw["kl"] - 0.11) * 0.36)
    mean, deviation = (
        torch.tensor(values).reshape(1, 4, 1, 1)
        for values in ((0.1, -0.2, 0.3, 0.0), (1.0, 2.0, 0.5, 1.5))
    )
    torch.testing.assert_close(
        ours["channels"].encode(pixels), (raw["channels"] - mean) * 0.5 / deviation
    )

    folded, norm = load_codec(str(part("flux2")), 4, 16), ours["flux2"].network.bn
    wanted = Flux2Pipeline._patchify_latents(raw["flux2"])
    wanted = (wanted - norm.running_mean.view(1, -1, 1, 1)) / torch.sqrt(
        norm.running_var.view(1, -1, 1, 1) + 1e-4
    )
    torch.testing.assert_close(folded.encode(pixels), wanted)
    torch.testing.assert_close(
        ours["flux2"].encode(pixels), Flux2Pipeline._unpatchify_latents(wanted)
    )
    for codec in (*ours.values(), folded):
        again = codec.decode(codec.encode(pixels))
        torch.testing.assert_close(
            again, codec.network.decode(raw_of(codec, raw)).sample, atol=1e-4, rtol=1e-4
        )


def raw_of(codec, raw):
    if codec.name == "AutoencoderKLFlux2":
        return raw["flux2"]
    return raw["kl"] if codec.network.config.shift_factor else raw["channels"]


@pytest.mark.parametrize(
    "name",
    [
        "t5gemma",
        "t5gemma_whole",
        "t5gemma_encoder",
        "t5",
        "clip_text",
        "qwen",
        "qwen_whole",
        "bert",
    ],
)
def test_a_text_encoder_of_transformers_trains_and_draws(name, part, tiny, tmp_path):
    run = tiny("spark", *SHORT, f"encode.text=pretrained_text(path='{part(name)}')")
    assert run.encode.text.width == 16
    text = run.encode.text.build(None)
    prompts = ["a red circle", "", "a large blue square at the top left"]
    emb, mask = text.encode(prompts)
    with torch.no_grad():
        for row, prompt in enumerate(prompts):  # alone and without padding
            ids = text.tokenizer(prompt)["input_ids"]
            assert int(mask[row].sum()) == len(ids)
            if ids:
                alone = text.network(input_ids=torch.tensor([ids])).last_hidden_state[0]
                torch.testing.assert_close(emb[row, : len(ids)], alone, atol=2e-5, rtol=1e-4)
    assert not emb[~mask].any()
    trained(run, tmp_path)


def test_the_encoder_half_of_t5gemma_is_the_whole_models(part):
    from fulcrum.networks.pretrained.text import load_text

    ours = load_text(str(part("t5gemma_whole")), 16, 64)
    theirs = transformers.T5GemmaModel.from_pretrained(part("t5gemma_whole")).eval()
    ids = torch.tensor([[2, 5, 7, 1]])
    with torch.no_grad():
        wanted = theirs.encoder(input_ids=ids).last_hidden_state
    torch.testing.assert_close(ours.network(input_ids=ids).last_hidden_state, wanted)


@pytest.mark.parametrize("name", ["dinov2", "dinov2_registers", "dinov3", "clip_vision", "clip"])
def test_a_vision_teacher_of_transformers_teaches(name, part, tiny, tmp_path):
    run = tiny(
        "spark + repa(teacher=eye, layer=1)",
        *SHORT,
        f"encode.teachers=[pretrained_teacher(name='eye', path='{part(name)}')]",
    )
    teacher = run.encode.teachers[0].build(None)
    pixels = torch.rand(2, 3, 32, 32) * 2 - 1
    tokens = teacher.tokens(pixels)
    assert tokens.shape == (2, 16, 16)
    mean, deviation = teacher.mean, teacher.deviation
    with torch.no_grad():
        states = teacher.network(
            pixel_values=((pixels + 1) / 2 - mean) / deviation
        ).last_hidden_state
    # class and register tokens stand before the patches
    torch.testing.assert_close(tokens, states[:, -16:])
    assert teacher.tokens(torch.rand(1, 3, 64, 64)).shape == (1, 64, 16)
    long = torch.rand(1, 3, 64, 24)  # pictures of other shapes: eight rows of three tokens
    seen = ((long + 1) / 2 - mean) / deviation
    with torch.no_grad():
        states = teacher.network(pixel_values=seen, **teacher.options).last_hidden_state
    assert torch.equal(teacher.tokens(long), states[:, -24:]) and teacher.tokens(long).shape == (
        1,
        24,
        16,
    )
    result, said = trained(run, tmp_path)
    assert any("teacher" in line and "deviation" in line for line in said)


def test_a_teacher_with_patches_of_fourteen_reads_256_as_224(tmp_path):
    config = transformers.Dinov2Config(
        hidden_size=16, num_hidden_layers=1, num_attention_heads=2, image_size=28, patch_size=14
    )
    transformers.Dinov2Model(config).save_pretrained(tmp_path / "dino")
    from fulcrum.networks.fillers import FolderTeacher

    record = FolderTeacher(name="eye", path=str(tmp_path / "dino"))
    assert record.patch == 16
    assert record.build(None).tokens(torch.zeros(1, 3, 256, 256)).shape == (1, 256, 16)


def test_flux2_is_never_read_as_flux1(part, tiny, tmp_path):
    """Through FLUX.1's class it loads with a log line only, and gives another latent space."""
    with pytest.raises(BadInput, match="made for AutoencoderKL, but .* holds AutoencoderKLFlux2"):
        tiny(
            "spark",
            f"encode.codec=pretrained_codec(path='{part('flux2')}', network='AutoencoderKL')",
        )
    forged = shutil.copytree(part("flux2"), tmp_path / "forged")
    config = json.loads((forged / "config.json").read_text())
    (forged / "config.json").write_text(json.dumps({**config, "_class_name": "AutoencoderKL"}))
    record = tiny("spark", f"encode.codec=pretrained_codec(path='{forged}')").encode.codec
    with pytest.raises(BadInput, match="3 unexpected keys, such as bn.num_batches_tracked"):
        record.build(None)


def test_missing_weights_are_not_made_up(part, tmp_path):
    from safetensors.torch import load_file, save_file

    from fulcrum.networks.pretrained.text import load_text

    cut = shutil.copytree(part("t5gemma"), tmp_path / "cut")
    weights = load_file(cut / "model.safetensors")
    weights.pop("encoder.norm.weight")
    save_file(weights, cut / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadInput, match="1 missing keys, such as encoder.norm.weight"):
        load_text(str(cut), 16, 64)


def test_a_tokenizer_of_another_model_is_refused(part, tmp_path):
    from fulcrum.networks.pretrained.text import load_text

    other = shutil.copytree(part("t5"), tmp_path / "other")
    (other / "tokenizer.json").unlink()
    with pytest.raises(BadInput, match="no tokenizer beside the text encoder; looked in"):
        load_text(str(other), 16, 64)
    config = transformers.T5Config(
        vocab_size=8, d_model=16, d_kv=8, d_ff=32, num_layers=1, num_heads=2
    )
    transformers.T5EncoderModel(config).save_pretrained(tmp_path / "small")
    for name in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(part("t5") / name, tmp_path / "small")
    with pytest.raises((BadInput, IndexError), match="belong to two models|out of range"):
        load_text(str(tmp_path / "small"), 16, 64)


def test_a_moved_folder_is_the_same_run_and_a_changed_byte_another(part, tiny, tmp_path):
    first = shutil.copytree(part("tiny"), tmp_path / "first")
    moved = shutil.copytree(part("tiny"), tmp_path / "moved")

    def at(folder):
        return tiny("spark", *SHORT, f"encode.codec=pretrained_codec(path='{folder}')")

    one, other = at(first), at(moved)
    assert key(one, 0) == key(other, 0)
    result, _ = trained(one, tmp_path / "out")
    shutil.rmtree(first)
    lines = []
    again = perform(Order(other, 0, "test", tmp_path / "out", System(), quiet=True), lines.append)
    assert again["key"] == result["key"] and any("finished already" in line for line in lines)
    trained(other, tmp_path / "out")  # its description now names the place where the files are
    with pytest.raises(BadInput, match="no folder at .*first"):
        key(one, 0)
    weights = moved / "diffusion_pytorch_model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert key(other, 0) != result["key"]


def test_long_prompts_are_cut_and_counted(part, tiny, tmp_path):
    run = tiny("spark", *SHORT, f"encode.text=pretrained_text(path='{part('t5')}', max_tokens=4)")
    from fulcrum.training.feed import Feed

    Feed(run, 0, tmp_path).at(0)  # who says nothing to people warns of nothing either
    lines = []
    # from the cache, told again
    assert Feed(run, 0, tmp_path, lines.append).at(0)[0].text.emb.shape[1] == 4
    assert any(
        line.startswith("warning: 16 of 16 prompts are longer than 4 tokens") for line in lines
    )


def test_a_hub_id_goes_the_same_way(part, tiny, tmp_path, monkeypatch):
    """The hub's own cache on this disk; nothing is asked over the network."""
    snapshot = (
        tmp_path / "models--some--vae" / "snapshots" / "0123456789abcdef0123456789abcdef01234567"
    )
    shutil.copytree(part("kl"), snapshot / "vae")
    (tmp_path / "models--some--vae" / "refs").mkdir()
    (tmp_path / "models--some--vae" / "refs" / "main").write_text(snapshot.name)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path))
    folder = tiny("spark", *SHORT, f"encode.codec=pretrained_codec(path='{part('kl')}')")
    for path in ("some/vae", "hub:some/vae", "hub:some/vae/vae"):
        run = tiny("spark", *SHORT, f"encode.codec=pretrained_codec(path='{path}')")
        assert key(run, 0) == key(folder, 0)
        pixels = torch.rand(1, 3, 32, 32)
        assert torch.equal(
            run.encode.codec.build(None).encode(pixels),
            folder.encode.codec.build(None).encode(pixels),
        )
    with pytest.raises(
        BadInput, match="neither a folder .* nor complete in the hub's cache(.|\n)*write hub:"
    ):
        tiny("spark", "encode.codec=pretrained_codec(path='some/other')")


def test_prx_asks_for_its_two_folders(part, tmp_path):
    from fulcrum import phrase

    run = phrase("prx_256")
    with pytest.raises(BadInput, match=r"encode\.codec\.path=FOLDER(.|\n)*encode\.text\.path"):
        perform(Order(run, 0, "prx_256", tmp_path, System(), quiet=True), print)
    with pytest.raises(BadInput, match="stride 8 and 16 channels, but .* gives stride 2 and 4"):
        phrase("prx_256", f"encode.codec.path={part('kl')}")
    with pytest.raises(BadInput, match="width 2304, but .* of width 16"):
        phrase("prx_256", f"encode.text.path={part('t5gemma')}")
    assert not list(tmp_path.iterdir())


def test_cached_latents_belong_to_their_network(part):
    from fulcrum.networks.network_hash import network_hash
    from fulcrum.networks.pretrained.codec import load_codec

    one, folded = load_codec(str(part("flux2")), 2, 4), load_codec(str(part("flux2")), 4, 16)
    assert network_hash(one) == network_hash(load_codec(str(part("flux2")), 2, 4))
    assert network_hash(one) != network_hash(folded)
    norm = network_hash(one)
    one.network.bn.running_mean[0] += 1
    assert network_hash(one) != norm
    assert np.isfinite(one.card["psnr"]) and one.card["normalisation"] == "batch norm's statistics"
