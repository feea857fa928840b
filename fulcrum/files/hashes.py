"""SHA-256 of bytes, files and JSON values, as hexadecimal digits: what names and verifies everything on disk."""

import hashlib
import json
from pathlib import Path

from fulcrum.files.paths import open_regular

DIGITS = 64  # of a whole hash; the first 32 name cache entries


def sha256_bytes(data: bytes | bytearray | memoryview, digits: int = DIGITS) -> str:
    """The first `digits` of the hash of some bytes."""
    return hashlib.sha256(data).hexdigest()[:digits]


def sha256_text(text: str, digits: int = DIGITS) -> str:
    """Of a text in UTF-8."""
    return sha256_bytes(text.encode(), digits)


def sha256_json(value: object, digits: int = DIGITS) -> str:
    """Of a JSON value, whatever the order of its keys. Names and seals of old files use this spelling: it never changes."""
    return sha256_text(json.dumps(value, sort_keys=True), digits)


def sha256_file(path: Path) -> str:
    """Of a plain file, read block by block; a link to one is followed, as the hub's cache is made of them."""
    with open(open_regular(path, follow=True), "rb") as stream:
        return hashlib.file_digest(stream, "sha256").hexdigest()
