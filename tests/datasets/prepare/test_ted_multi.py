"""From TedMultiTranslate's TSV files to clients in TFF's SQLite form."""

import csv
import json
import sqlite3

import pytest
import tensorflow as tf

from datasets.prepare import ted_multi
from tests.datasets import ted_lines
from tests.datasets.conftest import run_command
from tests.errors import refused

SMALL = ted_multi.Thresholds(min_clients_per_word=2, min_examples_per_client=2)


def talk(name, count, en="hello from {}", es="hola de {}"):
    return [{"talk_name": name, "en": en.format(i), "es": es.format(i)} for i in range(count)]


@pytest.fixture
def tsvs(tmp_path):
    """The three files, with one talk of three sentences each."""
    for split in ("train", "dev", "test"):
        ted_lines.write_tsv(tmp_path / f"all_talks_{split}.tsv", talk(f"ann_on_{split}", 3))
    return tmp_path


def prepare(folder, settings=SMALL):
    paths = ted_multi.find_files([str(folder / "*.tsv")])
    return ted_multi.prepare(paths, folder / "out", settings)


def add(path, *lines):
    with path.open("ab") as file:
        file.writelines(lines)


def clients(folder, split):
    """Returns `{client id: sentences}` as TFF's own loader gives them."""
    import tensorflow_federated as tff

    data = tff.simulation.datasets.load_and_parse_sql_client_data(
        str(folder / "out" / "ted_multi.sqlite"),
        {"tokens": tf.TensorSpec([], tf.string)},
        split,
    )
    return {
        c: [e["tokens"].numpy().decode() for e in data.create_tf_dataset_for_client(c)]
        for c in data.client_ids
    }


def vocabulary(folder):
    with open(folder / "out" / "ted_multi_vocabulary.csv", encoding="utf-8", newline="") as file:
        return {row["word"]: int(row["num_clients"]) for row in csv.DictReader(file)}


def test_clients_of_each_split_as_tff_reads_them(tsvs):
    report = prepare(tsvs)
    for split, name in (("train", "train"), ("valid", "dev"), ("test", "test")):
        assert clients(tsvs, split) == {
            f"en-ann_on_{name}": ["hello from 0", "hello from 1", "hello from 2"],
            f"es-ann_on_{name}": ["hola de 0", "hola de 1", "hola de 2"],
        }
        assert report["kept"][split] == {"clients": 2, "examples": 6}
    assert report["rows"] == {"train": 3, "valid": 3, "test": 3}
    assert report["skipped"] == {}
    assert json.loads((tsvs / "out" / "ted_multi_report.json").read_text()) == report
    names = sorted(p.name for p in (tsvs / "out").iterdir())
    assert names == sorted([ted_multi.DATABASE, ted_multi.VOCABULARY, ted_multi.REPORT])


def test_vocabulary_holds_the_words_of_enough_clients(tsvs):
    # `twice` is in one client however often; small clients count, too, but no valid or test one.
    add(tsvs / "all_talks_train.tsv", ted_lines.row(talk_name="b", en="twice twice").encode())
    add(tsvs / "all_talks_train.tsv", ted_lines.row(talk_name="c", en="hello once").encode())
    for split in ("dev", "test"):
        row = ted_lines.row(talk_name=f"d_{split}", en="held out", es="held out")
        add(tsvs / f"all_talks_{split}.tsv", row.encode())
    report = prepare(tsvs)
    assert [*vocabulary(tsvs).items()] == [("0", 2), ("1", 2), ("2", 2), ("hello", 2)]
    # from, de, hola, twice, once.
    assert report["words"] == {"kept": 4, "in too few clients": 5}
    assert report["too small"]["train"] == {"clients": 2, "examples": 2}


@pytest.mark.parametrize(
    ("raw", "words"),
    [
        ("I &apos;m HERE , man !", "i aposm here man"),
        ("&quot; yes &amp; no &quot; &#91; ok &#93;", "quot yes amp no quot 91 ok 93"),
        ("one<br />two<BR />three<br>four", "one two threebrfour"),
        ("hyper-mobile", "hypermobile"),
        ("  a \t b\r", "a b"),
        # As published: letters and signs that are not ASCII stay as they are.
        ("¿Qué? Él — “SÍ”", "¿qué Él — “sÍ”"),
        ("... !?", ""),
    ],
)
def test_words(raw, words):
    assert ted_multi.normalize(raw) == words


def test_rows_that_cannot_be_used_are_counted_by_reason(tsvs):
    row = ted_lines.row
    whole = row(talk_name="ann_on_train", en="kept", es="guardada")
    cut = whole.rsplit("\t", 1)[0] + "\n"
    bad = row(talk_name="ann_on_train", en="X", es="aquí", ja="Y").encode()
    add(
        tsvs / "all_talks_train.tsv",
        whole.replace("\n", "\r\n").encode(),
        cut.encode(),
        b"\n",
        whole.replace("\n", "\tmore\n").encode(),
        row(talk_name=" ", en="lost", es="perdida").encode(),
        row(talk_name="ann_on_train", en="_ _ NULL _ _", es="sin par").encode(),
        row(talk_name="ann_on_train", en="...", es="").encode(),
        bad.replace(b"X", b"caf\xe9").replace(b"Y", b"\xff"),
        bad.replace(b"ann_on_train", b"\xff"),
    )
    add(tsvs / "all_talks_test.tsv", row(talk_name="ann_on_train", en="leak", es="fuga").encode())
    report = prepare(tsvs)
    assert report["skipped"] == {
        "en cells that are __NULL__": 1,
        "en cells that are not UTF-8": 1,
        "en cells that are punctuation only": 1,
        "es cells that are empty": 1,
        "rows of a talk that another split has": 1,
        "rows with missing columns": 2,
        "rows with talk names that are not UTF-8": 1,
        "rows with too many columns": 1,
        "rows without a talk_name": 1,
    }
    assert clients(tsvs, "train") == {
        "en-ann_on_train": ["hello from 0", "hello from 1", "hello from 2", "kept"],
        "es-ann_on_train": [
            "hola de 0", "hola de 1", "hola de 2", "guardada", "sin par", "aquí"
        ],
    }  # fmt: skip


def test_names_that_sql_cannot_hold_and_rows_of_a_talk_that_lie_apart(tsvs):
    names = ("o'neil", 'o"neil', "o_neil", "josé; DROP")
    for rows in zip(*(talk(name, 2, name + " {}") for name in names), strict=True):
        add(tsvs / "all_talks_train.tsv", *(ted_lines.row(**r).encode() for r in rows))
    prepare(tsvs)
    train_clients = clients(tsvs, "train")
    english = {c for c in train_clients if c.startswith("en-")}
    assert english == {
        "en-ann_on_train", "en-o_neil", "en-o_neil_2", "en-o_neil_3", "en-josé_DROP"
    }  # fmt: skip
    assert all(len(said) in (2, 3) for said in train_clients.values())
    assert train_clients["en-josé_DROP"] == ["josé drop 0", "josé drop 1"]
    assert train_clients["es-josé_DROP"] == ["hola de 0", "hola de 1"]


def test_columns_in_another_order_and_a_byte_order_mark(tsvs):
    lines = ("\ufeffes\ten\ttalk_name", "hola\thello\tbob", "adiós\tbye\tbob", "")
    (tsvs / "all_talks_train.tsv").write_text("\r\n".join(lines), encoding="utf-8", newline="")
    prepare(tsvs, ted_multi.Thresholds(1, 2))
    assert clients(tsvs, "train") == {"en-bob": ["hello", "bye"], "es-bob": ["hola", "adiós"]}


def test_a_failure_leaves_what_was_there(tsvs):
    prepare(tsvs)
    before = {p: p.read_bytes() for p in (tsvs / "out").iterdir()}
    (tsvs / "all_talks_test.tsv").write_bytes(b"\x1f\x8b\x08\xff")
    with refused("all_talks_test.tsv line 1", "columns", "UTF-8"):
        prepare(tsvs)
    assert {p: p.read_bytes() for p in (tsvs / "out").iterdir()} == before


@pytest.mark.parametrize(
    ("content", "problem"),
    [(b"", "nothing"), (b"en\tfr\n", "'en, fr'"), (b"\xff\xfe\x00", "columns")],
)
def test_broken_files(tsvs, content, problem):
    (tsvs / "all_talks_train.tsv").write_bytes(content)
    with refused("all_talks_train.tsv line 1", problem, "es, talk_name among them, UTF-8"):
        prepare(tsvs)
    assert list((tsvs / "out").iterdir()) == []


def test_too_few_sentences_or_clients(tsvs):
    with refused("min_examples_per_client", 20, "of train"):
        prepare(tsvs, ted_multi.Thresholds())
    with refused("min_clients_per_word", 7, "7 words"):
        prepare(tsvs, ted_multi.Thresholds(7, 2))
    (tsvs / "all_talks_train.tsv").write_bytes("\t".join(ted_lines.COLUMNS).encode())
    with refused("min_examples_per_client", 2, "0 rows of train"):
        prepare(tsvs)


def test_files_and_their_splits(tsvs):
    paths = ted_multi.find_files([str(tsvs / "*.tsv")])
    assert [(s, p.name) for s, p in paths] == [
        ("train", "all_talks_train.tsv"), ("valid", "all_talks_dev.tsv"),
        ("test", "all_talks_test.tsv"),
    ]  # fmt: skip
    with refused("talks_tsv", "gone.tsv"):
        ted_multi.find_files([str(tsvs / "gone.tsv")])
    with refused("talks_tsv", ["all_talks_train.tsv"], "valid and test"):
        ted_multi.find_files([str(tsvs / "*train.tsv")])
    for name in ("talks.tsv", "test_of_train.tsv"):
        (tsvs / name).touch()
        with refused("talks_tsv", str(tsvs / name), "one of train, dev, test"):
            ted_multi.find_files([str(tsvs / name)])


def test_questions_about_a_client_use_the_index(tsvs):
    prepare(tsvs)
    with sqlite3.connect(tsvs / "out" / "ted_multi.sqlite") as connection:
        plan = connection.execute(
            "EXPLAIN QUERY PLAN SELECT serialized_example_proto FROM examples "
            "WHERE client_id = 'en-a' AND split_name = 'train'"
        ).fetchall()
    assert "USING INDEX examples_of_client" in plan[0][-1]


def test_the_command(tsvs):
    files = ",".join(str(tsvs / f"all_talks_{s}.tsv") for s in ("train", "dev", "test"))
    flags = [f"--talks_tsv={files}", f"--output={tsvs / 'out'}"]
    said = run_command(ted_multi, *flags, "--min_clients_per_word=1", "--min_examples_per_client=2")
    assert said.startswith((tsvs / "out" / ted_multi.REPORT).read_text())
    assert str(tsvs / "out" / "ted_multi.sqlite") in said
