"""Vision-language models of transformers, tiny and random: whatever they answer is a caption or is
quarantined."""

import json

import pytest

from fulcrum.data.caption_quality import CaptionRules
from fulcrum.data.stores.picture_store import PictureStore
from fulcrum.networks.captioning.captioners import SHIPPED, ChatWriter, Settings
from fulcrum.networks.captioning.recaption import Recaption, Wish
from fulcrum.networks.pretrained.text import ImageText
from fulcrum.spec.errors import BadInput
from tests.caption.tiny_vlms import save_blip, save_llava

LOOSE = CaptionRules(1, 99, most_repeated=1.0, refusals=False)


@pytest.fixture(scope="module")
def llava(tmp_path_factory):
    return save_llava(tmp_path_factory.mktemp("vlm") / "llava")


@pytest.fixture(scope="module")
def blip(tmp_path_factory):
    return save_blip(tmp_path_factory.mktemp("vlm") / "blip")


def test_a_chat_model_answers_by_batch_and_by_one_alike(llava, world_store):
    network, store = ImageText(str(llava)), PictureStore(world_store)
    assert network.takes_prompts and network.kind == "LlavaForConditionalGeneration"
    pictures = [store.picture(row) for row in range(5)]
    together = network.write(pictures, "describe this picture", 6)
    assert together == [
        network.write([picture], "describe this picture", 6)[0] for picture in pictures
    ]
    assert len({text for text, _ in together}) > 1 or together[0][0], "it says something"
    assert network.write(pictures, "describe this picture", 6, 1.0, 3) == network.write(
        pictures, "describe this picture", 6, 1.0, 3
    ), "what is drawn is drawn by the seed"


@pytest.mark.parametrize("kind", ["llava", "blip"])
def test_a_store_is_captioned(kind, request, world_store, tmp_path):
    folder = request.getfixturevalue(kind)
    wish = Wish(
        world_store,
        tmp_path / "new",
        str(folder),
        kind,
        (SHIPPED["short"],),
        Settings(max_tokens=8),
        rules=LOOSE,
        keep_all=True,
        limit=24,
    )
    go = Recaption(wish, lambda text: None)
    about = go.finished(go.ask).about
    column = about["columns"][f"{kind}_short"]
    assert column["class"] in ("LlavaForConditionalGeneration", "BlipForConditionalGeneration")
    assert column["model_hash"] and column["max_tokens"] == 8
    assert column["prompt"]["version"] == ("short-1" if kind == "llava" else "none"), (
        "what was really asked"
    )
    answers = about["captions"].get(f"{kind}_short", 0) + sum(about["quarantined_answers"].values())
    assert answers == 24 and about["count"] == 24
    assert json.loads((tmp_path / "new" / "ledger.json").read_text())["reasons"] == {
        "not asked about": 72
    }


def test_a_model_without_prompts_has_one_style(blip):
    with pytest.raises(BadInput, match="takes no prompt"):
        ChatWriter(str(blip), "cpu", Settings(), ["long", "short"])


def test_code_of_its_own_is_refused(llava, tmp_path):
    import shutil

    copy = shutil.copytree(llava, tmp_path / "copy")
    config = json.loads((copy / "config.json").read_text())
    (copy / "config.json").write_text(
        json.dumps({**config, "auto_map": {"AutoModel": "evil.Model"}})
    )
    with pytest.raises(BadInput, match="code of its own"):
        ImageText(str(copy))
    with pytest.raises(BadInput, match="no type is called"):
        ImageText(str(llava), dtype="int4")
