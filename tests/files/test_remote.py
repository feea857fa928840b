"""URLs: which files a pattern names, what a server states, and that nothing told of a URL shows its
secrets."""

import socket
import threading
from types import SimpleNamespace

import pytest

from fulcrum.files import remote
from fulcrum.files.remote import (
    RemoteCache,
    facts_of,
    list_files,
    numbered_urls,
    reason_of,
    without_secrets,
)
from fulcrum.spec.errors import BadInput, RunFailed


@pytest.mark.parametrize(
    "length, wanted", [("12", 12), ("²", None), ("-1", None), ("9" * 5000, None), (None, None)]
)
def test_a_length_that_is_no_number_is_none(length, wanted):
    assert facts_of("x", SimpleNamespace(headers={"Content-Length": length}))["size"] == wanted


def test_patterns_name_files():
    assert numbered_urls("a/{08..11}.tar") == [f"a/{n}.tar" for n in ("08", "09", "10", "11")]
    assert numbered_urls("{0..1}/{0..1}") == ["0/0", "0/1", "1/0", "1/1"] and numbered_urls(
        "x.tar"
    ) == ["x.tar"]


@pytest.mark.parametrize(
    "pattern, count",
    [
        ("{0..999}/{0..999}/{0..9}", "10,000,000"),  # each range alone is small
        ("{0..1000000}", "1,000,001"),
        ("{2..1}/{0..1}", "0"),
        (f"{{0..{'9' * 5000}}}", "too many"),
    ],
)
def test_patterns_beyond_all_measure_are_refused_at_once(pattern, count):
    with pytest.raises(BadInput, match=f"names {count} files"):
        numbered_urls(f"https://host/{pattern}.tar?token=s3cret")


def test_files_below_an_address_are_listed_by_their_ends(tmp_path):
    for name in ("b.tar", "a.TAR", "c.txt", "deep/d.tar"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    whole = [f"file://{tmp_path}/{name}" for name in ("a.TAR", "b.tar")]
    for address in (f"file://{tmp_path}", f"file://{tmp_path}/", f"file://{tmp_path}/*"):
        assert list_files(address, (".tar",)) == whole
    assert list_files(f"file://{tmp_path}/b*", (".tar", ".txt")) == whole[1:]
    assert list_files(f"file://{tmp_path}/nowhere", (".tar",)) == []
    with pytest.raises(
        BadInput, match="a web server cannot be asked what lies in https://host/a\n"
    ):
        list_files("https://host/a?token=s3cret", (".tar",))


def test_a_listing_that_fails_is_told_without_secrets(monkeypatch):
    def fails(self, path):
        raise OSError(f"no {path}?token=s3cret")

    monkeypatch.setattr("fsspec.implementations.memory.MemoryFileSystem.glob", fails)
    with pytest.raises(BadInput, match="cannot look at memory://s/a: OSError: no") as error:
        list_files("memory://s/a?token=s3cret", (".tar",))
    assert (
        "s3cret" not in str(error.value) and error.value.hint == "is it there, and may you read it?"
    )


SIGNED = "https://me:word@host/a/b.tar?X-Sig=" + "s3cret" * 60 + "&part=1%2F2"


@pytest.mark.parametrize(
    "text",
    [
        f"cannot read {SIGNED}",
        # the query would be cut in the middle, and what is left not be found
        f"{'x' * 150} {SIGNED}",
        f"moved to ftp://you:key@there/c.tar?token={'s3cret' * 60}",
        f"the signature {'s3cret' * 60} has expired",
        "part=1/2 is wrong, and so is 'me:word'",
        "https://host/b.tar#s3cret and HTTP://host?s3cret",
    ],
)
def test_no_secret_is_told_however_the_text_is_cut(text):
    told = reason_of(SIGNED, OSError(text))
    assert (
        not any(secret in told for secret in ("s3cret", "s3cre", "word", "key@", "token", "1/2"))
        and len(told) < 250
    )
    assert without_secrets(SIGNED) == "https://host/a/b.tar"


@pytest.mark.parametrize("sign", "/?#")
def test_a_password_that_ends_its_host_too_early_is_not_told(tmp_path, sign):
    """Somebody wrote it as it is: what comes before the sign is taken for host and port, and errors
    would show it."""
    url = f"https://me:s3cret{sign}word@host/a.tar"
    with pytest.raises(BadInput, match="its host is written wrongly") as error:
        RemoteCache(tmp_path).open(url)
    told = (
        f"{error.value} {without_secrets(url)}"
        f" {reason_of('https://host/b.tar', OSError(f'not {url}'))}"
    )
    assert "s3cret" not in told and "word@" not in told and "me:" not in told


@pytest.mark.parametrize(
    "url",
    [
        "http://host:80/a@b.tar",
        "http://[::1]/a@b.tar",
        "http://[::1]:80/a@b.tar",
        "file:///a:b/c@d",
    ],
)
def test_an_address_without_a_password_is_told_whole(url):
    assert without_secrets(f"{url}?token=s3cret") == url


@pytest.mark.parametrize(
    "target", ["ftp://127.0.0.1/x.tar", "file:///etc/passwd", "gopher:x", "//[bad/x"]
)
def test_redirects_lead_to_http_only_and_show_no_query(site, tmp_path, target):
    site.moved["/a.tar"] = f"{target}?token=s3cret with a space"
    with pytest.raises(RunFailed, match="cannot fetch") as error:
        RemoteCache(tmp_path).open(f"{site.url}/a.tar")
    assert "s3cret" not in str(error.value) and "space" not in str(error.value)


def test_what_comes_with_a_redirect_is_not_read(site, tmp_path):
    site.files["/b.tar"], site.moved["/a.tar"], site.beside = b"here", f"{site.url}/b.tar", 64
    with RemoteCache(tmp_path).open(f"{site.url}/a.tar") as stream:
        assert stream.read() == b"here"
    assert site.taken < 32  # what the system holds on the way; a server could send without end


def test_a_redirect_to_http_is_followed(site, tmp_path):
    site.files["/b.tar"], site.moved["/a.tar"] = b"here", f"{site.url}/b.tar?token=s3cret"
    with RemoteCache(tmp_path).open(f"{site.url}/a.tar") as stream:
        assert stream.read() == b"here"


@pytest.fixture
def trickle(request):
    """A server that answers every request byte by byte, for as long as it is asked to."""
    head, body = request.param
    with socket.create_server(("127.0.0.1", 0)) as server:
        over = threading.Event()

        def answer():
            while not over.is_set():
                try:
                    connection, _ = server.accept()
                    with connection:
                        connection.recv(4096)
                        connection.sendall(head)
                        for byte in body:
                            if over.wait(0.01):
                                return
                            connection.sendall(bytes([byte]))
                except OSError:  # the reader has given up
                    continue

        thread = threading.Thread(target=answer)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/a.tar"
        over.set()
        with socket.create_connection(server.getsockname()):
            pass
        thread.join()


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    "trickle",
    [
        (b"HTTP/1.1 206 Partial Content\r\nContent-Range: bytes 0-3/9\r\nETag: a\r\n\r\n", b"part"),
        (b"HTTP/1.1 204 No Content\r\nETag: a\r\n\r\n", b""),
        (b"HTTP/1.1 202 Accepted\r\nETag: a\r\n\r\n", b"wait"),
    ],
    indirect=True,
    ids=["206", "204", "202"],
)
def test_an_answer_that_is_no_whole_file_is_refused(trickle, tmp_path, request):
    with pytest.raises(RunFailed, match="where a whole file was asked for") as error:
        RemoteCache(tmp_path).open(trickle)
    assert request.node.callspec.id in str(error.value) and not list(tmp_path.glob("[0-9a-f]*"))


def test_a_server_that_says_nothing_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(remote, "WAIT", 0.2)
    monkeypatch.setattr(remote, "PAUSE", 0.01)
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}/a.tar"
        with pytest.raises(RunFailed, match="timed out"):
            RemoteCache(tmp_path).open(url)
