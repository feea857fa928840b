"""Finding, hashing and describing a folder: no torch, no network, and every refusal says where it
looked."""

import hashlib
import json
import os
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import save_file

from fulcrum.files import noted_hashes
from fulcrum.networks.fillers import FolderCodec, FolderText
from fulcrum.networks.pretrained import folder as place
from fulcrum.spec.edit import key
from fulcrum.spec.errors import BadInput

KL = {"_class_name": "AutoencoderKL", "block_out_channels": [1, 1, 1, 1], "latent_channels": 16}


@pytest.fixture
def vae(tmp_path):
    made = tmp_path / "vae"
    made.mkdir()
    (made / "config.json").write_text(json.dumps(KL))
    save_file({"a": np.zeros(3, np.float32)}, made / "diffusion_pytorch_model.safetensors")
    return made


def test_sizes_come_from_the_config(vae):
    found = FolderCodec(path=str(vae))
    assert (found.stride, found.channels, found.network) == (8, 16, "AutoencoderKL")
    whole = FolderCodec(path=str(vae.parent))  # a pipeline's folder holds vae/
    assert whole.hashes() == found.hashes() and whole.identity() == found.identity()


def test_flux2_may_be_asked_for_folded(vae):
    (vae / "config.json").write_text(
        json.dumps({**KL, "_class_name": "AutoencoderKLFlux2", "latent_channels": 32})
    )
    assert FolderCodec(path=str(vae)).channels == 32
    assert FolderCodec(path=str(vae), stride=16).channels == 128
    with pytest.raises(
        BadInput, match="stride 32, but .* stride 8 and 32 channels or stride 16 and 128 channels"
    ):
        FolderCodec(path=str(vae), stride=32)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"_class_name": "AutoencoderKLWan"}, "describes a AutoencoderKLWan, not a codec"),
        ({"_class_name": None}, "describes a part of unknown class"),
        ({"latent_channels": "16"}, "no proper latent_channels: found '16'"),
        ({"block_out_channels": None}, "no proper block_out_channels"),
    ],
)
def test_a_config_that_is_no_codec_says_so(vae, change, said):
    (vae / "config.json").write_text(json.dumps({**KL, **change}))
    with pytest.raises(BadInput, match=said):
        FolderCodec(path=str(vae))


@pytest.mark.parametrize("text", ["", "[]", "{", "[" * 100_000])
def test_a_config_that_cannot_be_read_says_so(vae, text):
    (vae / "config.json").write_text(text)
    with pytest.raises(BadInput, match="config.json"):
        FolderCodec(path=str(vae))


def test_a_missing_folder_or_file_says_where_it_looked(vae, tmp_path):
    with pytest.raises(BadInput, match=f"no folder at {tmp_path}/none"):
        FolderCodec(path=str(tmp_path / "none"))
    (tmp_path / "bare").mkdir()
    with pytest.raises(
        BadInput, match=f"looked at {tmp_path}/bare/config.json, {tmp_path}/bare/vae/config.json"
    ):
        FolderCodec(path=str(tmp_path / "bare"))
    (vae / "diffusion_pytorch_model.safetensors").unlink()
    with pytest.raises(
        BadInput, match="no weights in .*: looked for diffusion_pytorch_model.safetensors, "
    ):
        FolderCodec(path=str(vae)).hashes()


def test_pickles_are_refused(vae):
    (vae / "diffusion_pytorch_model.safetensors").rename(vae / "diffusion_pytorch_model.bin")
    with pytest.raises(
        BadInput, match="only pickled weights: diffusion_pytorch_model.bin(.|\n)*can run code"
    ):
        FolderCodec(path=str(vae)).hashes()


def test_an_index_cannot_point_out_of_its_folder(vae):
    (vae / "diffusion_pytorch_model.safetensors").rename(vae.parent / "out.safetensors")
    index = vae / "diffusion_pytorch_model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": {"a": "../out.safetensors"}}))
    with pytest.raises(BadInput, match="names '../out.safetensors'"):
        place.weight_files(vae)
    index.write_text(json.dumps({"weight_map": 3}))
    with pytest.raises(BadInput, match="cannot be read"):
        place.weight_files(vae)


def test_a_run_can_be_read_after_its_folder_has_gone(vae):
    whole = FolderCodec(path=str(vae)).model_dump()
    vae.rename(vae.with_name("moved"))
    assert FolderCodec(**whole).stride == 8
    with pytest.raises(BadInput, match="no folder at"):
        FolderCodec(**whole).hashes()


def test_config_and_tokenizer_are_part_of_the_hash(tmp_path, tiny):
    text = tmp_path / "text"
    text.mkdir()
    (text / "config.json").write_text(
        json.dumps({"architectures": ["T5EncoderModel"], "d_model": 96})
    )
    (text / "tokenizer.json").write_text("{}")
    save_file({"a": np.zeros(3, np.float32)}, text / "model.safetensors")
    run = tiny("spark", f"encode.text=pretrained_text(path='{text}')")
    keys = {
        key(run, 0),
        key(tiny("spark", f"encode.text=pretrained_text(path='{text}', max_tokens=64)"), 0),
    }
    (text / "tokenizer.json").write_text('{"other": 1}')
    keys.add(key(run, 0))
    (text / "config.json").write_text(
        json.dumps({"architectures": ["T5EncoderModel"], "d_model": 96, "eps": 1})
    )
    keys.add(key(run, 0))
    assert len(keys) == 4
    assert FolderText(path=str(text)).width == 96
    with pytest.raises(BadInput, match="width 7, but .* of width 96"):
        FolderText(path=str(text), width=7)


def test_a_large_file_is_hashed_once(vae, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(noted_hashes, "SMALL", 1)
    file = vae / "diffusion_pytorch_model.safetensors"
    old = time.time() - 60
    os.utime(file, (old, old))
    found, read = noted_hashes.file_hash(file), []
    real = hashlib.file_digest
    monkeypatch.setattr(hashlib, "file_digest", lambda *given: read.append(1) or real(*given))
    assert noted_hashes.file_hash(file) == found and not read


def test_a_phrase_with_a_folder_brings_no_torch(vae):
    """Reading a phrase and its key stays quick."""
    code = (
        "import sys; from fulcrum import phrase; from fulcrum.spec.edit import"
        f" key;key(phrase('pocket', \"encode.codec=pretrained_codec(path='{vae}')\","
        " 'data.size=32', 'model.patch=1'), 0);sys.exit('torch' in sys.modules or 'diffusers' in"
        " sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0


def test_the_licence_is_what_the_folder_says(vae):
    assert place.licence_of(vae).startswith("not stated")
    (vae / "README.md").write_text("---\nlicense: apache-2.0\n---\n")
    assert place.licence_of(vae) == "apache-2.0"


def test_only_hub_ids_ask_the_hub(vae, tmp_path, monkeypatch):
    """What is asked of the hub's library, word by word; it never answers from here."""
    hub = pytest.importorskip("huggingface_hub")
    asked = []

    def snapshot(repo, revision, allow_patterns, ignore_patterns, local_files_only):
        asked.append((repo, revision, local_files_only))
        assert "vae/*" in allow_patterns and "*.bin" in ignore_patterns
        if local_files_only:
            raise OSError("not there")
        return str(vae.parent)

    monkeypatch.setattr(hub, "snapshot_download", snapshot)
    with pytest.raises(BadInput, match="write hub:org/name to allow it"):
        FolderCodec(path="some/model")
    assert asked == [("some/model", None, True)]
    asked.clear()
    assert FolderCodec(path="hub:some/model@v2").channels == 16
    assert asked == [("some/model", "v2", True), ("some/model", "v2", False)]
    asked.clear()
    # reading a whole description asks nobody
    FolderCodec(path="hub:some/model", stride=8, channels=16)
    assert asked == [("some/model", None, True)]
    for path in (
        "./some/model",
        "/some/model",
        "~/some/model",
        "http://some/model",
        "hub:model",
        "hub:../a/b",
        "some",
    ):
        asked.clear()
        with pytest.raises(BadInput, match="no folder at"):
            FolderCodec(path=path)
        assert not asked
