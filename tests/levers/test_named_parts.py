"""Levers for full-size parts: they read the class that they name, take the place that they say, and
ask for a folder."""

from typing import ClassVar

import pytest
import torch

from fulcrum.data.fillers import World
from fulcrum.levers.catalog import CATALOG
from fulcrum.levers.laws import TINY, missing, tried, written
from fulcrum.spec.edit import key, put
from fulcrum.spec.errors import BadInput
from fulcrum.spec.phrase import apply, parse
from fulcrum.spec.run import System
from fulcrum.training.build import assemble
from fulcrum.training.feed import Feed

NAMES = ("flux2_codec", "repa_e_codec", "qwen3vl_text", "dinov2", "dinov3")
pytestmark = pytest.mark.skipif(
    any(missing(CATALOG.levers[name].network) for name in NAMES),
    reason="diffusers or transformers lack a class",
)


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("parts")


def phrase(text, *settings):
    return parse(text, CATALOG, [*TINY, *settings])


@pytest.mark.parametrize("name", NAMES)
def test_described_without_a_folder_and_asked_for_when_it_trains(name, tmp_path):
    text = f"spark + repa + {name}" if name.startswith("dino") else f"spark + {name}"
    run = phrase(text, "model.patch=4").run
    assert key(run, 0) != key(phrase("spark", "model.patch=4").run, 0)
    with pytest.raises(BadInput, match="does not travel with Fulcrum") as caught:
        Feed(run, 0, tmp_path).at(0)
    assert "path='FOLDER'" in str(caught.value)


@pytest.mark.parametrize("name", NAMES)
def test_a_folder_that_is_not_there_or_of_another_class_is_refused_when_the_phrase_is_read(
    name, root
):
    text = f"spark + repa + {name}" if name.startswith("dino") else f"spark + {name}"
    with pytest.raises(BadInput, match="there is no folder at"):
        phrase(f"{text}(path='/nowhere/at/all')")
    wrong = {
        "flux2_codec": "AutoencoderKL",
        "repa_e_codec": "AutoencoderKLFlux2",
        "dinov2": "DINOv3ViTModel",
    }
    other = written(wrong.get(name, "Dinov2Model"), root)
    with pytest.raises(BadInput, match="is about|not a text encoder"):
        phrase(f"{text}(path='{other}')")


def test_the_published_sizes():
    """32 channels at stride 8 for FLUX.2, 16 for REPA-E; as many tokens as before, and no other
    change."""
    base = parse("prx_256", CATALOG).run
    for name, channels in (("flux2_codec", 32), ("repa_e_codec", 16)):
        run = parse(f"prx_256 + {name}", CATALOG).run
        assert (run.encode.codec.stride, run.encode.codec.channels) == (8, channels)
        assert put(run, "encode.codec", base.encode.codec) == base
    small = phrase("spark + flux2_codec").run
    assert small.model.patch == 1 and small.tokens == phrase("spark").run.tokens
    with pytest.raises(BadInput, match="tokens of 4 px cannot be made"):
        phrase("spark + flux2_codec", "model.patch=1")


def test_flux2_is_read_by_its_own_class_and_normalised_by_its_own_statistics(root):
    """Fault A20: through FLUX.1's class the batch norm's statistics are dropped."""
    lever = tried(CATALOG.levers["flux2_codec"], root)
    codec = lever.edit(phrase("spark").run).encode.codec.build(None)
    norm = codec.network.bn
    assert codec.name == "AutoencoderKLFlux2" and codec.shift.numel() == 4 * codec.channels
    assert torch.equal(codec.shift.flatten(), norm.running_mean)


@pytest.mark.parametrize("name", ["dinov2", "dinov3"])
def test_a_teacher_takes_the_place_of_the_runs_own_in_either_order(name, root, tmp_path):
    folder = written(CATALOG.levers[name].network, root)
    one, other = (
        phrase(text).run
        for text in (
            f"spark + repa + {name}(path='{folder}')",
            f"spark + {name}(path='{folder}') + repa",
        )
    )
    assert one == other and one.encode.teacher("world").name == name
    built = assemble(one, 0, System(), Feed(one, 0, tmp_path))
    own = one.encode.teacher("world")
    assert built.feed.at(0)[0].teacher["world"].shape[-1] == own.width != 128
    assert any(own.width in value.shape for value in built.step.terms["alignment"].parameters())


class Foreign(World):
    """Pictures that the embedded teacher does not know."""

    kind: ClassVar[str] = "foreign"
    is_world: ClassVar[bool] = False


def test_pictures_that_the_embedded_teacher_does_not_know_may_have_another(root):
    base = put(phrase("spark").run, "data.source", Foreign(count=64))
    repa, dino = CATALOG.levers["repa"](), tried(CATALOG.levers["dinov2"], root)
    with pytest.raises(BadInput, match="let a pretrained one take its place"):
        apply(base, (repa,))
    assert apply(base, (repa, dino)) == apply(base, (dino, repa))


@pytest.mark.parametrize(
    "text, says",
    [
        ("spark + dinov2", "no term of the loss reads the teacher 'world'"),
        ("spark + repa + dinov2 + dinov3", "another takes the place"),
        ("spark + repa + dinov3 + dinov2", "another takes the place"),
        ("spark + repa + dinov2(instead_of=nobody)", "reads the teacher 'nobody'"),
        ("spark + flux2_codec + repa_e_codec", "both write encode.codec"),
        ("spark + flux2_codec + pixels", "leave one of them out|still sees"),
        ("spark + qwen3vl_text(max_tokens=0)", "at least 1"),
        ("spark + flux2_codec(stride=16)", "no setting 'stride'"),
    ],
)
def test_refused_when_the_phrase_is_read(text, says):
    with pytest.raises(BadInput, match=says):
        phrase(text, "model.patch=4")
