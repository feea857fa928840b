"""A store of pictures of the world with short captions only, and captioners that answer as told."""

import io

import numpy as np
import pytest
from PIL import Image

from fulcrum.data.readers.reader import Given
from fulcrum.data.stores.finish_import import run_import
from fulcrum.data.stores.importing import Options
from fulcrum.data.world.scene import render, scenes
from fulcrum.data.world.words import captions


class WorldPictures:
    """The first scenes of a split, drawn; captioned in one clause."""

    kind = "the embedded world"

    def __init__(self, count, split="reference", size=32):
        self.scenes = scenes(split, np.arange(count))
        self.images, self.texts = (
            render(self.scenes, size, "real"),
            captions(self.scenes, "short").texts,
        )

    def __iter__(self):
        for number, (image, text) in enumerate(zip(self.images, self.texts, strict=True)):
            stream = io.BytesIO()
            Image.fromarray(image.transpose(1, 2, 0)).save(stream, "PNG", compress_level=1)
            yield Given(f"scene {number}", stream.getvalue(), {"short": [text]})

    def share(self):
        return 0.0


@pytest.fixture(scope="session")
def world_store(tmp_path_factory):
    folder = tmp_path_factory.mktemp("world") / "store"
    run_import(
        WorldPictures(96), folder, Options(size=32, hold_out=0.1, shard=40), lambda text: None
    )
    return folder


class Scripted:
    """Answers by the picture's number: what a model might say on a bad day."""

    facts = {"model": "scripted", "takes_prompts": True}

    def __init__(self, said):
        self.said, self.asked = said, []

    def answers(self, pictures, numbers, prompt):
        self.asked += [(number, prompt.style) for number in numbers]
        return [self.said(number, prompt.style) for number in numbers]


@pytest.fixture
def scripted():
    return Scripted
