"""CLIP as transformers saves it, tiny and random: it reads letters, and its scores mean nothing but
are its own."""

import json

import torch


def save_clip(folder):
    from transformers import CLIPConfig, CLIPModel, CLIPTokenizer

    folder.mkdir(exist_ok=True)
    torch.manual_seed(0)
    tower = dict(
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=2,
        projection_dim=24,
    )
    letters = [chr(code) for code in range(97, 123)]
    vocabulary = {
        word: place
        for place, word in enumerate(
            [*letters, *(letter + "</w>" for letter in letters), "<|startoftext|>", "<|endoftext|>"]
        )
    }
    (folder / "vocab.json").write_text(json.dumps(vocabulary))
    (folder / "merges.txt").write_text("#version: 0.2\n")
    CLIPModel(
        CLIPConfig(
            text_config=dict(
                tower,
                vocab_size=len(vocabulary),
                max_position_embeddings=16,
                bos_token_id=52,
                eos_token_id=53,
                pad_token_id=53,
            ),
            vision_config=dict(tower, image_size=32, patch_size=8),
            projection_dim=24,
        )
    ).save_pretrained(folder)
    CLIPTokenizer(str(folder / "vocab.json"), str(folder / "merges.txt")).save_pretrained(folder)
    return folder
