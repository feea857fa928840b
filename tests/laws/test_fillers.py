"""Every filler of the catalogue stands in at least one run that the laws try: none is listed
untested."""

from fulcrum.levers.catalog import CATALOG, FILLERS
from fulcrum.levers.laws import ground_of, grounds

# Parts that read files the project does not ship; tests/interop, tests/train, tests/loss and
# tests/levers hold them to it.
WITH_FILES = {
    "pretrained_codec",
    "pretrained_text",
    "pretrained_teacher",
    "trunk",
    "diffusers",
    "folder",
    "filtered_folder",
    "mix",
    "named_captions",
    "vgg_lpips",
}


def test_every_filler_is_before_the_court():
    runs = [ground.run for ground in grounds(CATALOG)]
    for cls in CATALOG.levers.values():
        lever = cls()
        runs.append(lever.edit(ground_of(lever, CATALOG).run))
    tried = {type(filler) for run in runs for filler in run.fillers()}
    assert {filler.kind for filler in FILLERS if filler not in tried} <= WITH_FILES
