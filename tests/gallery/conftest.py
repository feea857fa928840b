"""What tests of the gallery share: a few of the smallest runs, hung side by side, and a server of
them."""

import http.client
import json
import shutil
import threading
from contextlib import contextmanager
from pathlib import Path

import pytest

from fulcrum.cli.gallery.runs import OpenModels, named_runs
from fulcrum.cli.gallery.server import DrawingDesk, open_gallery, sample_options
from fulcrum.judge.serve import HOST
from fulcrum.levers.catalog import CATALOG
from fulcrum.spec.run import System
from fulcrum.training.kept_weights import keeping
from fulcrum.training.session import Order, perform

HOSTILE = "<img src=x onerror=document.title='owned'><script>document.title='owned'</script>\"&'"
PROMPT = "a large red circle at the top left."


@pytest.fixture(scope="session")
def out(tiny, tmp_path_factory):
    """Four runs: two that kept points of their training, one of them with a hostile name; one of
    other pictures; one that is not finished."""
    out = tmp_path_factory.mktemp("hung") / "runs"
    keys = {}
    for name, phrase, settings, seed in (
        ("plain", "spark", (), 0),
        ("hostile", HOSTILE, (), 1),
        ("large", "spark large", ("data.size=64",), 0),
        ("stopped", "spark stopped", (), 2),
    ):
        run = tiny("spark", "optim.lr=0.05", *settings)
        order = Order(run, seed, phrase, out, System(), quiet=True)
        keys[name] = perform(
            order, lambda text: None, keeping(5 if name in ("plain", "hostile") else 0)
        )["key"]
    (out / keys["stopped"] / "result.json").unlink()
    (out / "keys.json").write_text(json.dumps(keys))
    return out


@pytest.fixture(scope="session")
def keys(out):
    return json.loads((out / "keys.json").read_text())


@pytest.fixture
def desk(out, keys):
    names = [keys[name] for name in ("plain", "hostile", "large", "stopped")]
    return desk_of(named_runs(names, out, CATALOG.fillers), out)


def desk_of(collection, out):
    return DrawingDesk(collection, OpenModels(), sample_options(out, Path("runs"), (), "cpu"))


@pytest.fixture
def served(desk):
    with serving(desk) as server:
        yield server


@pytest.fixture
def serve():
    """desk -> a server, as long as the block lasts."""
    return serving


@contextmanager
def serving(desk, prompts=(PROMPT, "a small blue square.")):
    with open_gallery(desk, list(prompts)) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def ask():
    return asked


def asked(server, method, path, body=None, **headers):
    """Status, headers and body of an answer."""
    port = server.server_address[1]
    connection = http.client.HTTPConnection(HOST, port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    given = {
        "Host": f"127.0.0.1:{port}",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    if body is not None:
        body = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = {"Content-Type": "application/json", "Content-Length": str(len(body)), **given}
    for name, value in given.items():
        if value is not None:
            connection.putheader(name, value)
    connection.endheaders(body)
    answer = connection.getresponse()
    content = answer.read()
    connection.close()
    return answer.status, dict(answer.getheaders()), content


@pytest.fixture
def copied(out, tmp_path):
    """The runs again, to be damaged."""
    return shutil.copytree(out, tmp_path / "runs")
