import contextlib
import functools
import hashlib
import http.server
import lzma
import os
import socket
import sqlite3
import threading
import time

import pytest

from datasets import emnist, options
from datasets.readers import files, sqlite_clients
from tests.errors import refused


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *args):
        pass


@contextlib.contextmanager
def serving(folder):
    handler = functools.partial(Quiet, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def pack(path, content, **options):
    """Packs content into a file; returns the file's hash."""
    path.write_bytes(lzma.compress(content, lzma.FORMAT_ALONE, **options))
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.mark.parametrize("name", ["x.lzma", "x"])
def test_download_unpacks_checks_and_moves_into_place(tmp_path, name):
    content = bytes(range(256)) * 20_000
    packed = lzma.compress(content, lzma.FORMAT_ALONE) if name.endswith(".lzma") else content
    (tmp_path / name).write_bytes(packed)
    target = tmp_path / "new" / "x"
    with serving(tmp_path) as url:
        files.download(f"{url}/{name}", target, hashlib.sha256(packed).hexdigest())
    assert target.read_bytes() == content
    assert [p.name for p in target.parent.iterdir()] == ["x"]


def test_a_path_of_a_user_is_there_and_of_its_kind(tmp_path):
    (tmp_path / "file").touch()
    assert files.existing("data_file", tmp_path / "file") == tmp_path / "file"
    for name, expected in (("file", "a folder, and a file"), ("none", "a folder, and nothing")):
        with refused("data_dir", expected=expected) as caught:
            files.existing("data_dir", tmp_path / name, "a folder")
        assert caught.value.finding == str(tmp_path / name)
    with refused("data_file", str(tmp_path), "a file, and a folder"):
        files.existing("data_file", tmp_path)


_PACKED = lzma.compress(bytes(range(256)) * 20_000, lzma.FORMAT_ALONE)


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (None, "HTTPError: HTTP Error 404"),
        (b"<html>please log in</html>", "LZMAError"),
        (_PACKED[:-1000], "Error"),
        (_PACKED[:40], "Error"),
        (_PACKED, hashlib.sha256(_PACKED).hexdigest()),
    ],
    ids=["not there", "a page", "cut", "cut early", "another"],
)
def test_a_download_that_fails_leaves_nothing(tmp_path, content, problem):
    if content is not None:
        (tmp_path / "x.lzma").write_bytes(content)
    target = tmp_path / "new" / "x"
    with serving(tmp_path) as url, refused(f"{url}/x.lzma", problem):
        files.download(f"{url}/x.lzma", target, "0" * 64)
    assert not target.parent.exists() or list(target.parent.iterdir()) == []


def test_host_that_never_answers_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(files, "_CONNECT_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as server:
        start = time.monotonic()
        with refused("/x", "0.3 seconds"):
            files.download(f"http://127.0.0.1:{server.getsockname()[1]}/x", tmp_path, "0" * 64)
        assert time.monotonic() - start < 60  # Without a limit it would wait for ever.


def test_emnist_is_downloaded_into_tffs_layout(tmp_path, monkeypatch, sqlite_dir):
    packed = tmp_path / "served"
    packed.mkdir()
    content = (sqlite_dir / "emnist" / "emnist_all.sqlite").read_bytes()
    monkeypatch.setattr(emnist, "_SHA256", pack(packed / "e.lzma", content, preset=0))
    cache = tmp_path / "cache"
    cache.mkdir()
    with serving(packed) as url:
        monkeypatch.setattr(emnist, "_URL", f"{url}/e.lzma")
        task = emnist.create_task(options.DataOptions("emnist", data_dir=str(cache)))
    assert [p.name for p in cache.iterdir()] == ["emnist_all.sqlite"]
    assert task.facts["source"] == "sqlite"


def _half(path):
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda path: path.write_bytes(b""), "SQLite database"),
        (lambda path: path.write_bytes(b"hello" * 50), "b'hellohello"),
        (_half, "truncated"),
        (lambda path: path.write_bytes(path.read_bytes()[:2048] + b"\x07" * 10**6), "a TFF client"),
        ("DROP TABLE examples", "no such table: examples"),
        ("ALTER TABLE examples RENAME COLUMN client_id TO who", "client_id"),
        ("ALTER TABLE client_metadata RENAME COLUMN num_examples TO n", "num_examples"),
        ("UPDATE client_metadata SET client_id = X'ff' WHERE rowid = 1", "b'\\xff'"),
        ("UPDATE client_metadata SET num_examples = 'many' WHERE rowid = 1", "0.0 examples"),
        ("UPDATE client_metadata SET num_examples = -1 WHERE rowid = 1", "-1 examples"),
        (
            "CREATE TABLE m AS SELECT * FROM client_metadata; DROP TABLE client_metadata;"
            "ALTER TABLE m RENAME TO client_metadata; UPDATE client_metadata SET split_name = NULL",
            "['None']",
        ),
    ],
)
def test_broken_databases(tmp_path, sqlite_dir, change, words):
    path = tmp_path / "b.sqlite"
    path.write_bytes((sqlite_dir / "emnist" / "emnist_all.sqlite").read_bytes())
    if callable(change):
        change(path)
    else:
        with contextlib.closing(sqlite3.connect(path)) as connection:
            connection.executescript(f"PRAGMA ignore_check_constraints = ON; {change}")
    with refused() as caught:
        sqlite_clients.open_split(path, "all_train")
    assert words in str(caught.value)


def test_what_killed_downloads_left_is_forgotten_after_a_day(tmp_path):
    names = [".a.sqlite.x.partial", ".a.sqlite.y.partial", ".b.sqlite.x.partial"]
    for name in names:
        (tmp_path / name).touch()
    for name in (names[0], names[2]):
        os.utime(tmp_path / name, (0, 0))
    with pytest.raises(ZeroDivisionError), files.appearing(tmp_path / "a.sqlite") as temporary:
        temporary.write_text(str(1 / 0))
    assert sorted(path.name for path in tmp_path.iterdir()) == names[1:]
