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


def test_download_unpacks_checks_and_moves_into_place(tmp_path):
    content = bytes(range(256)) * 20_000
    sha256 = pack(tmp_path / "x.lzma", content)
    target = tmp_path / "new" / "x"
    with serving(tmp_path) as url:
        files.download(f"{url}/x.lzma", target, sha256)
    assert target.read_bytes() == content
    assert [p.name for p in target.parent.iterdir()] == ["x"]


def test_download_of_what_is_not_packed(tmp_path):
    (tmp_path / "x").write_bytes(b"as it is")
    target = tmp_path / "new" / "x"
    with serving(tmp_path) as url:
        with refused(f"{url}/x", expected="0" * 64):
            files.download(f"{url}/x", target, "0" * 64)
        assert not target.exists()
        files.download(f"{url}/x", target, hashlib.sha256(b"as it is").hexdigest())
    assert target.read_bytes() == b"as it is"


def test_a_path_of_a_user_is_there_and_of_its_kind(tmp_path):
    (tmp_path / "file").touch()
    assert files.existing("data_file", tmp_path / "file") == tmp_path / "file"
    for name, expected in (("file", "a folder, and a file"), ("none", "a folder, and nothing")):
        with refused("data_dir", expected=expected) as caught:
            files.existing("data_dir", tmp_path / name, "a folder")
        assert caught.value.finding == str(tmp_path / name)
    with refused("data_file", str(tmp_path), "a file, and a folder"):
        files.existing("data_file", tmp_path)


@pytest.mark.parametrize("kept", [-1000, 40])
def test_truncated_download_leaves_nothing(tmp_path, kept):
    packed = lzma.compress(bytes(range(256)) * 20_000, lzma.FORMAT_ALONE)
    (tmp_path / "x.lzma").write_bytes(packed[:kept])
    target = tmp_path / "new" / "x"
    with serving(tmp_path) as url, refused(f"{url}/x.lzma", "Error"):
        files.download(f"{url}/x.lzma", target, "0" * 64)
    assert list(target.parent.iterdir()) == []


def test_download_that_is_not_there_or_fails_the_check(tmp_path):
    sha256 = pack(tmp_path / "x.lzma", b"not the file")
    (tmp_path / "y.lzma").write_bytes(b"<html>please log in</html>")
    target = tmp_path / "new" / "x"
    with serving(tmp_path) as url:
        with refused("z.lzma", "HTTPError: HTTP Error 404"):
            files.download(f"{url}/z.lzma", target, sha256)
        with refused("y.lzma", "LZMAError"):
            files.download(f"{url}/y.lzma", target, sha256)
        with refused("x.lzma", sha256, "0" * 64):
            files.download(f"{url}/x.lzma", target, "0" * 64)
    assert list(target.parent.iterdir()) == []


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


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda b: b"", "SQLite database"),
        (lambda b: b"hello" * 50, "b'hellohello"),
        (lambda b: b[: len(b) // 2], "truncated"),
        (lambda b: b[:2048] + b"\x07" * (len(b) - 2048), "a TFF client database"),
    ],
)
def test_broken_databases(tmp_path, sqlite_dir, change, words):
    path = tmp_path / "b.sqlite"
    path.write_bytes(change((sqlite_dir / "emnist" / "emnist_all.sqlite").read_bytes()))
    with refused() as caught:
        sqlite_clients.open_split(path, "all_train")
    assert words in str(caught.value)


def test_database_without_tffs_tables(tmp_path):
    path = tmp_path / "b.sqlite"
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE other (x)")
        connection.commit()
    with refused(finding="['other']"):
        sqlite_clients.open_split(path, "all_train")


@pytest.mark.parametrize(
    ("statement", "words"),
    [
        ("ALTER TABLE examples RENAME COLUMN client_id TO who", "client_id"),
        ("ALTER TABLE client_metadata RENAME COLUMN num_examples TO n", "num_examples"),
        ("UPDATE client_metadata SET client_id = X'ff' WHERE rowid = 1", "b'\\xff'"),
        ("UPDATE client_metadata SET num_examples = 'many' WHERE rowid = 1", "0.0 examples"),
        ("UPDATE client_metadata SET num_examples = -1 WHERE rowid = 1", "-1 examples"),
        ("UPDATE client_metadata SET split_name = NULL", "['None']"),
    ],
)
def test_cells_of_other_types(tmp_path, sqlite_dir, statement, words):
    path = tmp_path / "b.sqlite"
    path.write_bytes((sqlite_dir / "emnist" / "emnist_all.sqlite").read_bytes())
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA ignore_check_constraints = ON")
        if "NULL" in statement:
            connection.execute("CREATE TABLE m AS SELECT * FROM client_metadata")
            connection.execute("DROP TABLE client_metadata")
            connection.execute("ALTER TABLE m RENAME TO client_metadata")
        connection.execute(statement)
        connection.commit()
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
