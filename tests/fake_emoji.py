"""Stand-ins of emoji packages for tests: three tiny icon sets, names with keywords, and a renderer
that draws squares."""

import io
import json
import re
import tarfile

from PIL import Image

WORDS = (
    "apple",
    "boat",
    "cat",
    "drum",
    "eagle",
    "fish",
    "goat",
    "hat",
    "ink",
    "jar",
    "kite",
    "lamp",
    "moon",
    "nut",
    "owl",
    "pear",
    "quilt",
    "rose",
    "sun",
    "tree",
)
COLOURS = ("#d02020", "#2030d0", "#20a040", "#e0d020", "#803010")


def names():
    """CLDR's file: sixty names, a man and a woman of one trade, and a second name of one thing."""
    told = [f"{colour} {word}" for word in WORDS for colour in ("red", "blue", "old")] + [
        "man cook",
        "woman cook",
        "ship",
    ]
    return {
        "annotations": {
            "annotations": {
                str(n): {"tts": [one], "default": ["thing", one.split()[-1], one]}
                for n, one in enumerate(told)
            }
        }
    }, told


def body(number, style):
    side = 6 + (number * 7 + len(style)) % 9
    return (
        f'<path fill="{COLOURS[number % len(COLOURS)]}" d="M1'
        f' 1h{side}v{side + number % 3}h-{side}z"/>'
    )


def icon_set(style, told):
    icons = {one.replace(" ", "-"): {"body": body(n, style)} for n, one in enumerate(told[:-1])}
    icons["red-apple-light-skin-tone"] = {"body": body(3, style)}
    return {
        "icons.json": {
            "prefix": style,
            "icons": icons,
            "width": 16,
            "height": 16,
            "aliases": {
                "ship": {"parent": "blue-boat"},
                "turned": {"parent": "blue-boat", "hFlip": True},
            },
        },
        "info.json": {
            "name": style.title(),
            "category": "Emoji",
            "palette": True,
            "license": {"spdx": "MIT"},
        },
        "metadata.json": {"categories": {"Things & Words": list(icons)}},
        "package.json": {"version": "1.0.0"},
    }


def write_packages(folder, styles=("noto", "twemoji", "openmoji")):
    """npm's tarballs: package/... inside."""
    folder.mkdir(parents=True, exist_ok=True)
    annotations, told = names()
    _tar(
        folder / "cldr-annotations-full-1.0.0.tgz", {"annotations/en/annotations.json": annotations}
    )
    for style in styles:
        _tar(folder / f"iconify-json-{style}-1.0.0.tgz", icon_set(style, told))
    return folder


def _tar(path, files):
    with tarfile.open(path, "w:gz") as archive:
        for name, content in files.items():
            data = json.dumps(content).encode()
            info = tarfile.TarInfo(f"package/{name}")
            info.size = len(data)
            archive.addfile(info, io.BytesIO(data))


class Renderer:
    """Draws the one square that a stand-in's SVG holds."""

    def svg_to_bytes(self, svg_string, width, height, skip_system_fonts):
        assert skip_system_fonts
        fill, wide, tall = re.search(r'fill="(#\w+)" d="M1 1h(\d+)v(\d+)', svg_string).groups()
        image = Image.new("RGBA", (16, 16))
        image.paste(fill, (1, 1, 1 + int(wide), 1 + int(tall)))
        stream = io.BytesIO()
        image.resize((width, height), Image.Resampling.NEAREST).save(stream, "PNG")
        return stream.getvalue()
