"""The world's text encoder in transformers: the very classes that users load, on real captions."""

import json

import numpy as np
import pytest
import torch

from fulcrum.cli import main
from fulcrum.data.world.scene import scenes
from fulcrum.data.world.words import STYLES, captions
from fulcrum.networks.fillers import FolderText
from fulcrum.networks.text import LONGEST, PAD, START, WorldText, load_text
from fulcrum.training.interop.export import export_text

transformers = pytest.importorskip(
    "transformers", reason="the parity with ModernBertModel needs transformers"
)

ODD = [
    "",
    "  ",
    "a red zebra; an ÉCLAIR",
    "[PAD] a [START]ed red circle[MASK]",
    "it's 3 RED circles,a star.",
    "\tred\n",
]


@pytest.fixture(scope="module")
def prompts() -> list[str]:
    return [
        *ODD,
        *(
            line
            for style in STYLES
            for line in captions(scenes("validation", np.arange(40)), style).texts
        ),
    ]


@pytest.fixture(scope="module")
def text() -> WorldText:
    return load_text()


def test_the_stock_class_takes_the_weights_strictly_and_computes_the_same(text, prompts, tmp_path):
    folder = export_text(text, tmp_path / "text")
    stock = transformers.ModernBertModel(transformers.AutoConfig.from_pretrained(folder)).eval()
    stock.load_state_dict(text.state_dict(), strict=True)
    emb, mask = text.encode(prompts)
    ids, _ = text.tokenizer.batch(prompts)
    with torch.no_grad():
        states = stock(input_ids=ids, attention_mask=mask).last_hidden_state
    assert (states[mask] - emb[mask]).abs().max() < 1e-5
    assert not mask.all() and 0.9 < float(emb[mask].std()) < 1.1


def test_the_saved_tokenizer_gives_our_ids(text, prompts, tmp_path):
    folder = export_text(text, tmp_path / "text")
    saved = transformers.AutoTokenizer.from_pretrained(folder)
    saved.save_pretrained(tmp_path / "again")
    again = transformers.PreTrainedTokenizerFast.from_pretrained(tmp_path / "again")
    ids, mask = text.tokenizer.batch(prompts)
    for stock in (saved, again):
        read = stock(prompts, padding=True, return_tensors="pt")
        assert torch.equal(read["input_ids"], ids) and torch.equal(
            read["attention_mask"].bool(), mask
        )
        assert (
            stock("")["input_ids"] == [START]
            and stock.pad_token_id == PAD
            and stock.model_max_length == LONGEST
        )


def test_the_folder_comes_back_as_a_pretrained_encoder(text, prompts, tmp_path):
    """What a user of the folder gets: the same embeddings, through the same seam as any other
    encoder."""
    filler = FolderText(path=str(export_text(text, tmp_path / "text")))
    emb, mask = filler.build(None).encode(prompts)
    known, kept = text.encode(prompts)
    assert filler.width == text.width and torch.equal(mask, kept)
    assert (emb - known).abs().max() < 1e-5


def test_the_embedded_parts_leave_by_a_command(tmp_path, capsys):
    """`fulcrum assets export`: a part with a stock class is written, any other is refused, nothing
    is overwritten."""
    for name, network in (("text", "ModernBertModel"), ("codec", "AutoencoderKL")):
        with pytest.raises(SystemExit) as end:
            main(["assets", "export", name, str(tmp_path / name), "--json"])
        assert not end.value.code and json.loads(capsys.readouterr().out)["network"] == network
        assert (tmp_path / name / "config.json").is_file()
    for name, words in (("judge", "no stock class"), ("text", "not empty")):
        with pytest.raises(SystemExit) as end:
            main(["assets", "export", name, str(tmp_path / "text")])
        assert end.value.code and words in capsys.readouterr().err
