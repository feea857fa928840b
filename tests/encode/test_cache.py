"""The caches: what comes back is what was encoded; damage, other inputs and two writers are
handled."""

import json
import time
from pathlib import Path
from weakref import WeakKeyDictionary

import numpy as np
import pytest
import torch

from fulcrum.data.captions import Chooser
from fulcrum.data.source import WorldSource
from fulcrum.files.paths import Damaged
from fulcrum.networks import network_hash as hash_room
from fulcrum.networks.codec import IdentityCodec, KLCodec, load_codec
from fulcrum.networks.network_hash import network_hash, to_unit
from fulcrum.networks.rows import Cache, Encoder, Text, most_tokens, widened
from fulcrum.networks.teacher import load_teacher
from fulcrum.networks.text import WorldText, load_text
from fulcrum.spec.errors import BadInput

SOURCE = WorldSource("validation", "synthetic", 32, 300)
LONG = Chooser(("long",), (1.0,))


@pytest.fixture(scope="module")
def text() -> WorldText:
    return load_text()


@pytest.fixture(scope="module")
def codec() -> KLCodec:
    return load_codec()


def test_latents_come_back(tmp_path: Path, codec: KLCodec) -> None:
    said: list[str] = []
    ids = np.array([299, 0, 17, 17])
    found = Cache(tmp_path).latents(SOURCE, codec, said.append).stored(ids)
    wanted = codec.encode(to_unit(torch.from_numpy(SOURCE.read(ids).images)))
    assert (found - wanted).abs().max() < 5e-6 * wanted.abs().max()
    assert said and said[-1].startswith("encoding latents: 300 of 300")


def test_the_second_time_nothing_is_encoded(tmp_path: Path, codec: KLCodec) -> None:
    first = Cache(tmp_path).latents(SOURCE, codec)
    again: list[str] = []
    second = Cache(tmp_path).latents(SOURCE, codec, again.append)
    assert not again and torch.equal(first.stored(np.arange(300)), second.stored(np.arange(300)))


def test_chunks_that_are_made_side_by_side_are_the_same(
    tmp_path: Path, codec: KLCodec, text: WorldText
) -> None:
    source, inside = WorldSource("validation", "synthetic", 32, 900), torch.get_num_threads()
    alone, abreast = Cache(tmp_path / "alone"), Cache(tmp_path / "abreast")
    abreast.threads = 3
    ids = np.arange(900)
    assert torch.equal(
        alone.latents(source, codec).stored(ids), abreast.latents(source, codec).stored(ids)
    )
    one, other = (cache.texts(source, LONG, text).stored(ids) for cache in (alone, abreast))
    assert torch.equal(one[0], other[0]) and torch.equal(one[1], other[1])
    assert torch.get_num_threads() == inside


def test_what_fails_in_a_thread_is_told(tmp_path: Path, codec: KLCodec) -> None:
    class Broken(WorldSource):
        def read(self, index):
            if 256 in index:
                raise BadInput("picture 256 is broken", "mend it")
            return super().read(index)

    cache = Cache(tmp_path)
    cache.threads = 2
    with pytest.raises(BadInput, match="picture 256"):
        cache.latents(Broken("validation", "synthetic", 32, 900), codec)


def test_an_encoding_by_older_code_is_not_read(text: WorldText) -> None:
    now = network_hash(text)
    text.revision += 1
    try:
        assert network_hash(text) != now
    finally:
        del text.revision
    assert network_hash(text) == now


def test_pixels_are_kept_as_bytes_and_are_exact(tmp_path: Path) -> None:
    images = SOURCE.read(np.arange(10)).images
    found = Cache(tmp_path).latents(SOURCE, IdentityCodec()).stored(np.arange(10))
    assert torch.equal(widened(found), to_unit(torch.from_numpy(images)))
    assert sum(p.stat().st_size for p in tmp_path.rglob("rows.*.bin")) == 300 * 3 * 32 * 32


def test_texts_come_back_within_half_precision(tmp_path: Path, text: WorldText) -> None:
    ids = np.array([5, 250, 0])
    cache = Cache(tmp_path).texts(SOURCE, LONG, text)
    emb, mask = cache.stored(ids)
    wanted, keep = text.encode(LONG.prompts(SOURCE.scenes(ids), ids))
    assert torch.equal(mask, keep)
    error = (emb - wanted).abs().max()
    assert 0 < error < 4e-3  # unit variance: fp16 keeps 11 bits of values up to 8
    assert (emb - wanted).square().mean().sqrt() < 5e-4
    longer, kept = cache.stored(ids, cache.longest)
    assert (
        torch.equal(longer[:, : emb.shape[1]], emb)
        and kept.sum() == mask.sum()
        and (longer[~kept] == 0).all()
    )
    with pytest.raises(ValueError, match="pass length >="):
        cache.stored(ids, 3)


def test_another_source_style_or_network_is_another_entry(
    tmp_path: Path, text: WorldText, codec: KLCodec
) -> None:
    cache = Cache(tmp_path)
    small = WorldSource("validation", "synthetic", 32, 20)
    cache.texts(small, LONG, text)
    cache.texts(small, Chooser(("short",), (1.0,)), text)
    cache.texts(small, Chooser(("long", "short"), (0.5, 0.5)), text)
    cache.texts(WorldSource("validation", "synthetic", 32, 21), LONG, text)
    other = KLCodec()
    cache.latents(small, codec)
    cache.latents(small, other)
    cache.latents(WorldSource("validation", "real", 32, 20), codec)
    assert len([p for p in tmp_path.iterdir() if p.is_dir()]) == 6, (
        "a mix reads the entries of its styles, and has none"
    )


def test_the_network_hash_sees_one_weight(codec: KLCodec) -> None:
    other = KLCodec(**codec.config)
    other.load_state_dict(codec.state_dict())
    assert network_hash(other) == network_hash(codec)
    with torch.no_grad():
        next(other.parameters())[0, 0, 0, 0] += 1e-3
    assert network_hash(other) != network_hash(codec)


def test_a_network_is_hashed_once_until_a_weight_changes(
    tmp_path: Path, text: WorldText, codec: KLCodec, monkeypatch
) -> None:
    """Two styles, latents, and the same again: as a start asks for training, agreement and the
    held-out loss."""
    counted, plain, own = [], hash_room._content, KLCodec(**codec.config)
    monkeypatch.setattr(
        hash_room, "_content", lambda head, weights: counted.append(head) or plain(head, weights)
    )
    monkeypatch.setattr(hash_room, "_hashed", WeakKeyDictionary())
    cache, small = Cache(tmp_path), WorldSource("validation", "synthetic", 32, 20)
    for _ in range(3):
        cache.texts(small, Chooser(("long", "short"), (0.5, 0.5)), text)
        cache.latents(small, own)
    assert len(counted) == 2, "the text encoder once, the codec once"
    before = network_hash(own)
    for change in (
        lambda weight: weight.add_(1e-3),
        lambda weight: weight.set_(weight.clone() + 1.0),
    ):
        with torch.no_grad():
            change(next(own.parameters()))
        assert network_hash(own) != before
        before = network_hash(own)
    assert len(counted) == 4
    own.double()
    assert network_hash(own) != before


def entry(root: Path) -> Path:
    (found,) = [p for p in root.iterdir() if p.is_dir()]
    return found


def test_a_flipped_bit_is_found(tmp_path: Path, codec: KLCodec) -> None:
    Cache(tmp_path).latents(SOURCE, codec)
    path = entry(tmp_path) / "rows.00000.bin"
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    latents = Cache(tmp_path).latents(SOURCE, codec)
    good = 299  # bit 150 lies in chunk 0
    latents.stored(np.array([good]))  # of another chunk
    with pytest.raises(Damaged, match="a bit has changed(.|\n)*run again"):
        latents.stored(np.array([1]))


def test_truncation_and_a_changed_header_are_found(tmp_path: Path, codec: KLCodec) -> None:
    Cache(tmp_path).latents(SOURCE, codec)
    header = entry(tmp_path) / "header.json"
    told = json.loads(header.read_text())
    told["arrays"]["rows"]["shape"][0] -= 1
    before = header.read_text()
    header.write_text(json.dumps(told))
    with pytest.raises(Damaged, match="header"):
        Cache(tmp_path).latents(SOURCE, codec)
    header.write_text(before)
    path = entry(tmp_path) / "rows.00000.bin"
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(Damaged, match="should hold 614400 bytes, found 614396"):
        Cache(tmp_path).latents(SOURCE, codec)
    header.write_text("{")
    with pytest.raises(Damaged, match="no readable header"):
        Cache(tmp_path).latents(SOURCE, codec)


def test_the_encoder_gives_batches_by_position(
    tmp_path: Path, text: WorldText, codec: KLCodec
) -> None:
    encoder = Encoder(SOURCE, LONG, 7, codec, text, Cache(tmp_path))
    batch = encoder.at(290, 20)  # across the border of an epoch
    assert batch.x0.shape == (20, 8, 8, 8)
    assert batch.ids.tolist() == encoder.ids(290, 20).tolist()
    torch.testing.assert_close(encoder.at(295, 3).x0, batch.x0[5:8], atol=0, rtol=0)
    prompts = encoder.prompts_at(290, 20)
    emb, mask = text.encode(prompts, encoder.texts.longest)
    assert torch.equal(mask, batch.text.mask)
    torch.testing.assert_close(emb, batch.text.emb, atol=4e-3, rtol=0)


def test_teacher_tokens_come_back_within_half_precision(tmp_path: Path) -> None:
    teacher, ids = load_teacher(), np.array([299, 0, 17, 17])
    tokens = Cache(tmp_path).tokens(SOURCE, teacher).stored(ids)
    wanted = teacher.tokens(to_unit(torch.from_numpy(SOURCE.read(ids).images)))
    assert tokens.shape == (4, 64, 128)
    torch.testing.assert_close(tokens.float(), wanted, atol=4e-3, rtol=1e-3)


def test_dropped_rows_become_the_empty_prompt(
    tmp_path: Path, text: WorldText, codec: KLCodec
) -> None:
    batch = Encoder(SOURCE, LONG, 7, codec, text, Cache(tmp_path)).at(0, 4)
    dropped = batch.text.with_dropped(torch.tensor([True, False, True, False]), batch.empty_text)
    empty, _ = text.encode([""])
    assert dropped.mask.sum(1).tolist() == [
        1,
        int(batch.text.mask[1].sum()),
        1,
        int(batch.text.mask[3].sum()),
    ]
    torch.testing.assert_close(dropped.emb[0, :1], empty[0], atol=4e-3, rtol=0)
    assert (dropped.emb[0, 1:] == 0).all() and torch.equal(dropped.emb[1], batch.text.emb[1])
    none = batch.text.with_dropped(torch.zeros(4, dtype=torch.bool), batch.empty_text)
    assert torch.equal(none.emb, batch.text.emb)


def test_as_many_tokens_are_told_as_may_be_real_whatever_is_dropped() -> None:
    """In steps of 256, and never more than there are places."""
    generator = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, 61, (32,), generator=generator)
    mask, empty = torch.arange(60) < lengths[:, None], torch.zeros(3, 8)
    text = Text(torch.zeros(32, 60, 8), mask, most_tokens(mask, len(empty)))
    for share in (0.0, 0.1, 0.5, 1.0):
        dropped = text.with_dropped(torch.rand(32, generator=generator) < share, empty)
        assert int(dropped.mask.sum()) <= dropped.most == text.most
    assert text.most - 256 < int(lengths.clamp(min=3).sum()) and text.most % 256 == 0
    assert most_tokens(mask[:2], 3) == 120, "a step is more than two texts have"
    assert most_tokens(torch.ones(32, 1, dtype=torch.bool), 1) == 32, (
        "and more than there are places"
    )


def test_rows_come_fast(tmp_path: Path, text: WorldText, codec: KLCodec) -> None:
    """5,000 rows/s on a quiet core; the bound here leaves room for a busy machine (process time,
    not wall time)."""
    encoder = Encoder(SOURCE, LONG, 7, codec, text, Cache(tmp_path))
    encoder.at(0, 128)
    begin = time.process_time()
    for step in range(8):
        encoder.at(128 * step, 128)
    assert 8 * 128 / (time.process_time() - begin) > 5_000
