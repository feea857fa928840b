"""What is published of a run names no folder of anybody's machine, and no secret of an address."""

import json

import pytest

from fulcrum.training.interop.export import description


def published(path, phrase="spark --set data.source.path={path}"):
    """run.json of a run whose source lies at a path, and its phrase."""
    about = {
        "key": "0" * 16,
        "phrase": phrase.format(path=path),
        "run": {
            "data": {"source": {"kind": "folder", "path": path, "judged": None}},
            "teachers": [{"path": path}],
        },
        "user_files": {path: "hash"},
    }
    text = description(about)
    return text, json.loads(text)


PLACES = {
    "/home/bob/secret/data/set": "set",
    "secret_client/project/data": "data",
    "../../home/bob/x": "x",
    "~/clients/acme/x/": "x",
    "/home/o'brien/data/x": "x",
    "/home/a, b/c/x": "x",
    "/home/me (secret)/my pictures": "my pictures",
    "C:\\Users\\bob\\x": "x",
    "https://user:secret@host/a/x.tar?signature=SECRET": "https://host/a/x.tar",
    "s3://bucket/key?sig=SECRET": "s3://bucket/key",
    "hub:org/name/part": "hub:org/name/part",
}
PHRASES = (
    "spark --set data.source.path={path}",
    "spark --set data.source=folder(path={path}, split=train)",
    "spark + dinov2(path={path}) --set optim.lr=0.1",
)


@pytest.mark.parametrize("phrase", PHRASES)
@pytest.mark.parametrize(("path", "name"), PLACES.items(), ids=range(len(PLACES)))
def test_of_a_path_its_last_name_is_published(path, name, phrase):
    text, plain = published(path, phrase)
    assert plain["run"]["data"]["source"]["path"] == plain["run"]["teachers"][0]["path"] == name
    assert plain["user_files"] == {name: "hash"} and plain["phrase"] == phrase.format(path=name)
    assert not any(
        word in text.lower() for word in ("bob", "secret", "brien", "client", "home", "users")
    )


@pytest.mark.parametrize("quote", "'\"")
def test_a_phrase_may_spell_a_path_otherwise_than_its_run(quote):
    """A run holds it resolved, its phrase as it was typed."""
    about = {
        "key": "0",
        "phrase": (
            f"spark --set data.source=folder(path={quote}my work/acme, inc/x{quote}, count=3)"
        ),
    }
    text = json.loads(description({**about, "run": {"path": "/home/bob/work/x"}}))["phrase"]
    assert text == f"spark --set data.source=folder(path={quote}x{quote}, count=3)"


def test_sentences_of_a_card_stay_sentences():
    from fulcrum.training.interop.export import placeless_card

    card = {
        "licence": (
            "CC BY 4.0 and/or mine, see https://me:pw@host/terms?token=SECRET or"
            " /home/bob/terms/mine.txt"
        ),
        "scorer": "clip=/home/bob/clip",
        "columns": {"recap_long": {"model": "clients/acme/vlm"}},
        "count": 3,
    }
    assert placeless_card(card) == {
        "licence": "CC BY 4.0 and/or mine, see https://host/terms or mine.txt",
        "scorer": "clip",
        "columns": {"recap_long": {"model": "vlm"}},
        "count": 3,
    }
