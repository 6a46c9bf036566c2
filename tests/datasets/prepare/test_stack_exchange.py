import collections
import tracemalloc
import xml.sax.saxutils

import pytest

from datasets import stackoverflow
from datasets.options import DataOptions
from datasets.prepare import stack_exchange, stack_exchange_xml
from tests.datasets.conftest import run_command
from tests.errors import refused


def row(body="<p>Some text.</p>", **attributes):
    """Returns a row as a dump has it; an attribute of None is left out."""
    defaults = {
        "Id": "1",
        "PostTypeId": "1",
        "CreationDate": "2014-01-21T20:26:05.383",
        "Score": "17",
        "Body": body,
        "OwnerUserId": "7",
        "Title": "What is it?",
        "Tags": "<first-tag><c++>",
    }
    present = {k: v for k, v in (defaults | attributes).items() if v is not None}
    quoted = (f"{k}={xml.sax.saxutils.quoteattr(v)}" for k, v in present.items())
    return f"  <row {' '.join(quoted)} />"


def dump(path, *rows, head='\ufeff<?xml version="1.0" encoding="utf-8"?>'):
    text = "\n".join([head, "<posts>", *rows, "</posts>"])
    path.write_bytes(text.encode("utf-8", "surrogateescape"))
    return path


def prepare(tmp_path, *rows, **options):
    """Returns (report, examples by user) of a dump of some rows, read as TFF reads them."""
    output = tmp_path / "out.sqlite"
    report = stack_exchange.prepare(dump(tmp_path / "Posts.xml", *rows), output, **options)
    return report, read(output)


def read(path):
    import tensorflow_federated as tff
    from tensorflow_federated.python.simulation.datasets import stackoverflow as published

    data = tff.simulation.datasets.SqlClientData(str(path), "stack_exchange").preprocess(
        published._add_proto_parsing
    )
    return {
        i: [
            {k: v.decode() if isinstance(v, bytes) else int(v) for k, v in example.items()}
            for example in data.create_tf_dataset_for_client(i).as_numpy_iterator()
        ]
        for i in data.client_ids
    }


# --- text -----------------------------------------------------------------------------------------

TOKENS = {
    # As in TFF's own samples.
    "If you're using SQL 2005 or better this is a nice, simple-ish median": (
        "if you're using sql 2005 or better this is a nice , simple-ish median"
    ),
    "C# would use yield!": "c # would use yield !",
    "VB.NET": "vb . net",
    "see https://a.example/b?c=d_e#f, or www.b.example/x.": "see <URL> , or <URL> .",
    "(http://a.example)": "( <URL> )",
    "snake_case  +=\t1": "snake _ case + = 1",
    "“Don’t” — naïve…": '" don\'t " - nave . . .',
    "日本": "",
    "": "",
}


@pytest.mark.parametrize("text", TOKENS)
def test_tokens(text):
    assert stack_exchange.tokenize(text) == TOKENS[text]


def test_sentences():
    body = (
        "<p>First one. Second,\nwith a &amp; and <em>some</em> <code>x_y</code>! "
        "&quot;Third?&quot; Fourth at 3.5 e.g. here</p><pre><code>int main();</code></pre>\n"
        "<ul><li>item</li><li>5 < 6</li></ul>edit:<br>thanks<hr/>"
    )
    assert stack_exchange.split_sentences(body) == [
        "first one .",
        "second , with a & and some x _ y !",
        '" third ? "',
        "fourth at 3 . 5 e . g . here",
        "item",
        "5 < 6",
        "edit :",
        "thanks",
    ]
    for body in (" \n", "<pre>code</pre>", "<p></p><img src='x'>", "<pre>a"):
        assert stack_exchange.split_sentences(body) == []


@pytest.mark.parametrize("piece", ["<p", "<!--", "&#", "((((A. "])
def test_hostile_bodies_take_no_time(piece):
    assert len(stack_exchange.split_sentences(piece * (200_000 // len(piece)))) < 100_000


# --- posts ----------------------------------------------------------------------------------------


def test_fields_are_tffs(tmp_path):
    report, users = prepare(
        tmp_path,
        row("<p>It is old. Really.</p>"),
        row(
            "<p>Yes!</p>", Id="2", PostTypeId="2", ParentId="1", OwnerUserId="12", Title=None,
            Tags=None, Score="-3", CreationDate="2014-02-01T00:00:00.000",
        ),
        row("<p>No.</p>", Id="3", Tags="|one|two|", CreationDate="2014-02-01T01:00:00.120"),
    )  # fmt: skip
    assert report == {
        "users": 2, "sentences": 4, "posts kept": 3, "answers without their question": 0
    }  # fmt: skip
    question = {"title": "what is it ?", "tags": "first-tag|c + +"}
    date = "2014-01-21 20:26:05.383 UTC"
    shared = {**question, "creation_date": date, "score": 17, "type": "question"}
    later = "2014-02-01 01:00:00.12 UTC"
    assert users["7"] == [
        {**shared, "tokens": "it is old ."},
        {**shared, "tokens": "really ."},
        {**shared, "tags": "one|two", "creation_date": later, "tokens": "no ."},
    ]
    assert users["12"] == [
        {
            **question, "creation_date": "2014-02-01 00:00:00 UTC", "score": -3, "type": "answer",
            "tokens": "yes !",
        }
    ]  # fmt: skip


BAD_POSTS = {
    "no owner": [row(OwnerUserId=None), row(OwnerUserId=" "), row(OwnerUserId="")],
    "a date that does not parse": [
        row(CreationDate="yesterday"), row(CreationDate=None), row(CreationDate="2014-02-30T00:00")
    ],
    "an empty body": [row(""), row(" \n"), row(None)],
    "no words outside of code blocks": [row("<pre>x</pre>"), row("<p> </p>"), row("<p>日本</p>")],
    "neither a question nor an answer": [row(PostTypeId="5"), row(PostTypeId=None), "<row />"],
    "a score that is no number": [row(Score="many"), row(Score=None), row(Score="1" * 30)],
    "bytes that are not UTF-8": [row("caf\udce9"), row(Title="\udcff\udcfe"), row(Tags="<\udc80>")],
    "a body of more than 500,000 characters": [row("a b " * 130_000)] * 3,
}  # fmt: skip


def test_posts_that_cannot_be_used_are_counted_by_reason(tmp_path):
    bad = [post for posts in BAD_POSTS.values() for post in posts]
    report, users = prepare(tmp_path, *bad[:5], row(), *bad[5:])
    skipped = {k.removeprefix("posts skipped: "): n for k, n in report.items() if "skipped" in k}
    assert skipped == dict.fromkeys(BAD_POSTS, 3)
    assert report["posts kept"] == 1 and list(users) == ["7"]


def test_every_reference_that_xml_forbids_is_mended(tmp_path):
    """Char ::= #x9 | #xA | #xD | [#x20-#xD7FF] | [#xE000-#xFFFD] | [#x10000-#x10FFFF]."""
    allowed = [0x9, 0xA, 0xD, 0x20, 0xD7FF, 0xE000, 0xFFFD, 0x10000]
    forbidden = [*range(9), 0xB, 0xC, *range(0xE, 0x20), 0xD800, 0xDFFF, 0xFFFE, 0xFFFF]
    forms = ("&#{};", "&#0{};", "&#x{:x};", "&#x0{:X};")
    body = "".join(form.format(n) for form in forms for n in [*allowed, *forbidden])
    path = tmp_path / "Posts.xml"
    path.write_text(f'<posts>\n<row Body="{body}\x07\uffff"/>\n</posts>')
    (row,) = stack_exchange_xml.read_rows(path)
    expected = ("".join(map(chr, allowed)) + " " * len(forbidden)) * len(forms)
    assert row["Body"] == f"{expected}  "


def test_ids_with_quotes_stay_apart_and_can_be_read(tmp_path):
    ids = ["o'neil", 'o"neil', "o%27neil", "o neil", "-1", "o;DROP TABLE examples"]
    _, users = prepare(tmp_path, *(row(f"I am {i}.", OwnerUserId=i) for i in ids))
    assert [len(examples) for examples in users.values()] == [1] * len(ids)
    assert "-1" in users and not any(set(i) & set("'\"; ") for i in users)


def test_answers_without_their_question_are_kept_and_counted(tmp_path):
    answer = {"PostTypeId": "2", "Title": None, "Tags": None}
    report, users = prepare(
        tmp_path,
        row("early", Id="2", ParentId="3", **answer),
        row("no parent", Id="4", **answer),
        row(Id="3", OwnerUserId=None, Title="Found\udcff?"),
        row("late", Id="5", ParentId="3", **answer),
    )
    assert report["answers without their question"] == 2
    assert report["posts skipped: bytes that are not UTF-8"] == 1
    titles = [(e["tokens"], e["title"], e["tags"]) for e in users["7"]]
    assert titles == [
        ("early", "", ""), ("no parent", "", ""), ("late", "found ?", "first-tag|c + +")
    ]  # fmt: skip


# --- files ----------------------------------------------------------------------------------------

BAD_FILES = {
    "entity": ('<!DOCTYPE p [<!ENTITY g "x">]>\n<posts>\n</posts>', " line 1", "<row"),
    "entities in a row": ('<!DOCTYPE p [<!ENTITY g "x">]><row Body="&g;"/>', " line 1", "<row"),
    "undefined entity": ('<posts>\n<row Body="&g;"/>\n</posts>', " line 2", "<row"),
    "truncated": (f"<posts>\n{row()}\n{row()[:60]}", " line 3", "<row"),
    "without its end": (f"<posts>\n{row()}\n", "", "</posts>"),
    "empty": ("", "", "</posts>"),
    "UTF-16": (f"<posts>\n{row()}\n</posts>".encode("utf-16"), " line 1", "<row"),
    "no row": ("<posts>\n</posts>", "", "questions and answers"),
    "nothing usable": (f"<posts>\n{row(OwnerUserId=None)}\n</posts>", "", "with an owner"),
}


@pytest.mark.parametrize("case", BAD_FILES)
def test_bad_files_end_in_one_line_and_leave_nothing(tmp_path, case):
    text, place, expected = BAD_FILES[case]
    path = tmp_path / "Posts.xml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    output = tmp_path / "out.sqlite"
    output.write_text("an earlier one")
    with refused(f"{path}{place}", expected=expected):
        stack_exchange.prepare(path, output)
    assert output.read_text() == "an earlier one"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["Posts.xml", "out.sqlite"]


def test_bad_paths(tmp_path):
    path = dump(tmp_path / "Posts.xml", row())
    archive = tmp_path / "posts.7z"
    archive.write_bytes(b"7z\xbc\xaf\x27\x1c" * 9)
    for posts_xml, output, where, expected in (
        (tmp_path / "gone.xml", "a.sqlite", "posts_xml", "a dump's Posts.xml, and nothing"),
        (tmp_path, "a.sqlite", "posts_xml", "a folder is there"),
        (archive, "a.sqlite", "posts_xml", "7z"),
        (path, "a.db", "output", ".sqlite"),
        (path, "Posts.xml/a.sqlite", "output", "what can be written"),
    ):
        with refused(where, expected=expected):
            stack_exchange.prepare(posts_xml, tmp_path / output)
    stack_exchange.prepare(path, tmp_path / "new" / "folder" / "a.sqlite")


def test_a_row_without_end_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(stack_exchange_xml, "_MAX_ROW", 100_000)
    path = dump(tmp_path / "Posts.xml", row("a" * 90_000), row("b" * 1_000_000))
    with refused(f"{path} line 4", expected="a whole <row"):
        collections.deque(stack_exchange_xml.read_rows(path), maxlen=0)


def test_memory_does_not_grow_with_the_dump(tmp_path):
    def peak(num_rows):
        path = dump(tmp_path / "Posts.xml", *[row("<p>word word</p>" * 500)] * num_rows)
        tracemalloc.start()
        try:
            assert sum(1 for _ in stack_exchange_xml.read_rows(path)) == num_rows
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()

    assert peak(900) < 1.3 * peak(300) < 40e6


@pytest.mark.parametrize(
    ("flags", "tokens"), [((), [", a va ?"]), (("--keep_non_ascii",), ["ёлка , ça va ?"])]
)
def test_command(tmp_path, flags, tokens):
    rows = [row("Ёлка, ça va?"), row(OwnerUserId=None), row(PostTypeId="4")]
    path, output = dump(tmp_path / "Posts.xml", *rows), tmp_path / "stack_exchange.sqlite"
    said = run_command(stack_exchange, f"--posts_xml={path}", f"--output={output}", *flags)
    assert said.startswith(f"{output}:\n") and " 1 posts kept\n" in said
    assert " 1 posts skipped: no owner\n" in said
    ((_, examples),) = read(output).items()
    assert [example["tokens"] for example in examples] == tokens


# --- the loader reads what is written -------------------------------------------------------------


def create(**options):
    return stackoverflow.create_task(DataOptions("stackoverflow", **options))


def test_a_prepared_dump_is_found_and_split(tmp_path):
    rows = [
        row(f"We are number {user}. Numbers are words. Words are many.", OwnerUserId=str(user))
        for user in range(20)
    ]
    stack_exchange.prepare(dump(tmp_path / "Posts.xml", *rows), tmp_path / "stack_exchange.sqlite")
    task = create(data_dir=str(tmp_path))
    assert task.facts["source"] == "stack_exchange"
    assert task.facts["prepared"] == {"posts kept": 20, "answers without their question": 0}
    assert [len(c) for c in task.splits.values()] == [15, 2, 3]
    # 7 words of all, and each training user's number.
    assert task.facts["vocabulary"]["found"] == 7 + 15
