"""Extractors: FID's graph by its published shapes, CLIP and DINOv2 from folders, the same call for
all."""

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import nn

from fulcrum.measure.features.extractor import BATCH, Extractor, antialiased, load_extractor
from fulcrum.measure.features.networks import (
    Inception,
    pixels_like_pytorch_fid,
    resize_like_tensorflow,
)
from fulcrum.spec.errors import BadInput
from tests.tiny_clip import save_clip

transformers = pytest.importorskip("transformers")


def pictures(n: int, side: int = 40, seed: int = 0) -> torch.Tensor:
    return torch.randint(
        0, 256, (n, 3, side, side), generator=torch.Generator().manual_seed(seed), dtype=torch.uint8
    )


@pytest.fixture(scope="module")
def inception():
    torch.manual_seed(0)
    return Inception().eval()


@pytest.fixture(scope="module")
def clip_folder(tmp_path_factory):
    return save_clip(tmp_path_factory.mktemp("clip"))


@pytest.fixture(scope="module")
def dino_folder(tmp_path_factory):
    from transformers import Dinov2Config, Dinov2Model

    folder = tmp_path_factory.mktemp("dino")
    torch.manual_seed(0)
    Dinov2Model(
        Dinov2Config(
            hidden_size=32, num_hidden_layers=2, num_attention_heads=2, image_size=28, patch_size=14
        )
    ).save_pretrained(folder)
    return folder


def test_inception_has_the_published_shapes(inception) -> None:
    shapes = {}
    x = torch.zeros(1, 3, 299, 299)
    for name, module in inception.named_children():
        if name in ("Conv2d_3b_1x1", "Mixed_5b"):
            x = nn.functional.max_pool2d(x, 3, stride=2)
        x = module(x)
        shapes[name] = tuple(x.shape[1:])
    assert shapes == {
        "Conv2d_1a_3x3": (32, 149, 149),
        "Conv2d_2a_3x3": (32, 147, 147),
        "Conv2d_2b_3x3": (64, 147, 147),
        "Conv2d_3b_1x1": (80, 73, 73),
        "Conv2d_4a_3x3": (192, 71, 71),
        "Mixed_5b": (256, 35, 35),
        "Mixed_5c": (288, 35, 35),
        "Mixed_5d": (288, 35, 35),
        "Mixed_6a": (768, 17, 17),
        "Mixed_6b": (768, 17, 17),
        "Mixed_6c": (768, 17, 17),
        "Mixed_6d": (768, 17, 17),
        "Mixed_6e": (768, 17, 17),
        "Mixed_7a": (1280, 8, 8),
        "Mixed_7b": (2048, 8, 8),
        "Mixed_7c": (2048, 8, 8),
    }
    assert inception(torch.zeros(1, 3, 299, 299)).shape == (1, 2048)


def test_inception_has_the_known_state_dict(inception) -> None:
    """21,785,568 parameters before the classifier, in 94 convolutions with their batch norms."""
    assert sum(parameter.numel() for parameter in inception.parameters()) == 21_785_568
    state = inception.state_dict()
    assert sum(name.endswith(".conv.weight") for name in state) == 94
    assert {name.rsplit(".", 2)[-2] + "." + name.rsplit(".", 1)[-1] for name in state} == {
        "conv.weight",
        "bn.weight",
        "bn.bias",
        "bn.running_mean",
        "bn.running_var",
        "bn.num_batches_tracked",
    }
    known = {
        "Conv2d_4a_3x3.conv.weight": (192, 80, 3, 3),
        "Mixed_5b.branch5x5_2.conv.weight": (64, 48, 5, 5),
        "Mixed_5d.branch_pool.conv.weight": (64, 288, 1, 1),
        "Mixed_6a.branch3x3.conv.weight": (384, 288, 3, 3),
        "Mixed_6c.branch7x7dbl_4.conv.weight": (160, 160, 7, 1),
        "Mixed_6e.branch7x7_2.conv.weight": (192, 192, 1, 7),
        "Mixed_7a.branch7x7x3_4.conv.weight": (192, 192, 3, 3),
        "Mixed_7c.branch3x3dbl_3b.conv.weight": (384, 384, 3, 1),
        "Mixed_7b.branch_pool.conv.weight": (192, 1280, 1, 1),
    }
    assert {name: tuple(state[name].shape) for name in known} == known
    assert all(
        module.eps == 0.001 for module in inception.modules() if isinstance(module, nn.BatchNorm2d)
    )


def test_inception_pools_as_fid_does(inception) -> None:
    """Padding stays out of the means; only the last block takes the maximum."""
    from fulcrum.measure.features.networks import average

    assert torch.equal(average(torch.ones(1, 1, 4, 4)), torch.ones(1, 1, 4, 4))
    assert not inception.Mixed_7b.by_maximum and inception.Mixed_7c.by_maximum


def test_tensorflows_resize_by_hand() -> None:
    """Pixel i is read at i * size / side: 0, 2/3, 4/3 of two pixels, the last one repeated beyond
    the edge."""
    row = torch.tensor([0.0, 90.0]).expand(1, 1, 2, 2)
    assert torch.allclose(resize_like_tensorflow(row, 3)[0, 0, 0], torch.tensor([0.0, 60.0, 90.0]))
    assert torch.equal(resize_like_tensorflow(pictures(1, 299).float()), pictures(1, 299).float())
    shrunk = resize_like_tensorflow(torch.arange(8.0).expand(1, 1, 8, 8), 4)
    # not antialiased: every second pixel is unread
    assert torch.equal(shrunk[0, 0, 0], torch.tensor([0.0, 2.0, 4.0, 6.0]))
    assert pixels_like_pytorch_fid(pictures(1)).aminmax().max <= 1.0


@pytest.mark.parametrize("suffix", [".safetensors", ".pth"])
def test_inception_from_a_file(inception, tmp_path, suffix: str) -> None:
    path = tmp_path / f"weights{suffix}"
    state = {
        name: value
        for name, value in inception.state_dict().items()
        if not name.endswith("num_batches_tracked")
    }
    state |= {"fc.weight": torch.zeros(1008, 2048), "fc.bias": torch.zeros(1008)}
    save_file(state, path) if suffix == ".safetensors" else torch.save(state, path)
    ours = load_extractor(f"inception={path}")
    assert ours.width == 2048 and ours.card()["resize"].endswith("TensorFlow 1")
    images = pictures(2)
    rows = ours.features(images)
    resized = (resize_like_tensorflow(images.float()) - 128) / 128
    assert rows.shape == (2, 2048) and torch.allclose(rows, inception(resized), atol=1e-4)
    other = load_extractor(f"inception-torch={path}")
    # two cards: not to be compared
    assert other.hash != ours.hash and not torch.equal(other.features(images), rows)


def test_weights_that_are_no_inception(tmp_path) -> None:
    save_file({"Mixed_5b.branch1x1.conv.weight": torch.zeros(2, 2)}, tmp_path / "w.safetensors")
    with pytest.raises(BadInput, match="is not FID's Inception"):
        load_extractor(f"inception={tmp_path / 'w.safetensors'}")

    class Evil:
        def __reduce__(self):
            return (print, ("code ran",))

    torch.save({"a": Evil()}, tmp_path / "evil.pth")
    with pytest.raises(BadInput, match="cannot be read"):
        load_extractor(f"inception={tmp_path / 'evil.pth'}")
    with pytest.raises(BadInput, match="no Inception weights"):
        load_extractor(f"inception={tmp_path / 'none.pth'}")


def test_clip_from_a_folder(clip_folder) -> None:
    from transformers import CLIPModel

    clip = load_extractor(f"clip={clip_folder}")
    assert clip.width == 24 and "32 px" in clip.resize and len(clip.hash) == 64
    images = pictures(3)
    rows = clip.rows(images)
    network = CLIPModel.from_pretrained(clip_folder).eval()
    mean, std = (
        torch.tensor(part).reshape(1, 3, 1, 1)
        for part in ((0.48145466, 0.4578275, 0.40821073), (0.26862954, 0.26130258, 0.27577711))
    )
    with torch.no_grad():
        seen = network(
            pixel_values=(antialiased(images, 32) - mean) / std,
            input_ids=torch.tensor([[52, 0, 53]] * 3),
        )
    unit = torch.nn.functional.normalize(rows, dim=1)
    assert torch.allclose(unit, seen.image_embeds, atol=1e-5)
    assert clip.score is not None
    scores = clip.score(images, ["a", "a", "a b"])
    assert scores.shape == (3,) and bool((scores >= 0).all()) and bool((scores <= 100).all())


def test_clip_score_is_the_models_own_cosine(clip_folder) -> None:
    from transformers import CLIPModel, CLIPTokenizer

    clip, network = (
        load_extractor(f"clip={clip_folder}"),
        CLIPModel.from_pretrained(clip_folder).eval(),
    )
    images, words = pictures(2), ["red dog", "cat"]
    tokens = CLIPTokenizer.from_pretrained(clip_folder)(words, padding=True, return_tensors="pt")
    with torch.no_grad():
        out = network(
            input_ids=tokens["input_ids"],
            attention_mask=tokens["attention_mask"],
            pixel_values=torch.zeros(2, 3, 32, 32),
        )
    rows = torch.nn.functional.normalize(clip.rows(images), dim=1)
    expected = 100 * (rows * out.text_embeds).sum(1).clamp_min(0)
    assert torch.allclose(clip.score(images, words), expected, atol=1e-3)


def test_dino_from_a_folder(dino_folder) -> None:
    from transformers import Dinov2Model

    dino = load_extractor(f"dino={dino_folder}")
    assert dino.width == 32 and "28 px" in dino.resize
    network = Dinov2Model.from_pretrained(dino_folder).eval()
    mean, std = (
        torch.tensor(part).reshape(1, 3, 1, 1)
        for part in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
    )
    images = pictures(2)
    with torch.no_grad():
        seen = network(pixel_values=(antialiased(images, 28) - mean) / std).pooler_output
    assert torch.allclose(dino.rows(images), seen, atol=1e-5)


def test_resize_is_what_pillow_does() -> None:
    """A16: shrinking without antialiasing reads a few pixels and skips the rest."""
    from PIL import Image

    image = pictures(1, 96)
    there = Image.fromarray(image[0].permute(1, 2, 0).numpy()).resize(
        (32, 32), Image.Resampling.BICUBIC
    )
    ours = (antialiased(image, 32)[0] * 255).round().permute(1, 2, 0).numpy()
    assert np.abs(ours - np.asarray(there, dtype=np.float32)).max() <= 2


def test_features_do_not_depend_on_neighbours(clip_folder) -> None:
    """Bit for bit, whatever the split: the network always sees the same number of pictures."""
    images = pictures(BATCH + 9)
    for text in ("embedded", f"clip={clip_folder}"):
        extractor = load_extractor(text)
        whole = extractor.rows(images)
        parts = torch.cat([extractor.rows(part) for part in images.split(7)])
        assert torch.equal(whole, parts), text


def test_refusals(clip_folder, dino_folder, tmp_path) -> None:
    for text, says in (
        ("inceptoin=x", "did you mean: inception"),
        ("clip", "needs its weights"),
        ("embedded=x", "not read"),
        (f"clip={dino_folder}", "expected 'clip'"),
        (f"dino={clip_folder}", "expected 'dinov2'"),
        (f"dino={tmp_path}", "config.json"),
        ("clip=no/such/place", "nor complete in the hub's cache"),
    ):
        with pytest.raises(BadInput) as error:
            load_extractor(text)
        assert says in str(error.value), text
    with pytest.raises(ValueError, match="NaN or infinity"):
        Extractor(
            "nan", "h", "none", "uint8", 3, lambda images: images.float().mean((2, 3)) * torch.nan
        ).rows(pictures(4))
    with pytest.raises(BadInput, match="says width 5 and gave 3"):
        Extractor("odd", "h", "none", "uint8", 5, lambda images: images.float().mean((2, 3))).rows(
            pictures(4)
        )
