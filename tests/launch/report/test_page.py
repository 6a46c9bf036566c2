"""The page: well-formed, safe against what tables hold, and in need of nothing else."""

import base64
import hashlib
import html
import html.parser
import json
import re

from launch.report import page

_POLICY = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_VOID = {"meta", "link", "img", "br"}
NASTY = '<script>alert("x")</script> & <b>'


class _Checker(html.parser.HTMLParser):
    """Collects ids, links and addresses, and sees that all tags close in order."""

    def __init__(self):
        super().__init__()
        self.open, self.ids, self.links, self.sources, self.tags = [], [], [], [], set()

    def handle_starttag(self, tag, attributes):
        named = dict(attributes)
        self.tags.add(tag)
        if tag not in _VOID:
            self.open.append(tag)
        if "id" in named:
            self.ids.append(named["id"])
        self.links += [v for k, v in named.items() if k == "href"]
        self.sources += [v for k, v in named.items() if k == "src"]

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def check(text):
    """Asserts that a page is whole and asks for nothing; returns what was collected."""
    checker = _Checker()
    checker.feed(text)
    checker.close()
    assert checker.open == []
    assert len(set(checker.ids)) == len(checker.ids)
    anchors = [link for link in checker.links if link.startswith("#")]
    assert {anchor[1:] for anchor in anchors} <= set(checker.ids)
    others = [link for link in checker.links if not link.startswith("#")]
    assert all(address.startswith("data:") for address in [*checker.sources, *others])
    assert not re.search(r"url\(|@import", text)
    # Only scripts that the policy knows by their bytes; data are no script.
    scripts = re.findall(r"<script([^>]*)>(.*?)</script>", text, re.DOTALL)
    assert len(scripts) == text.count("<script")
    ours = []
    for attributes, content in scripts:
        if "application/json" in attributes:
            json.loads(content)
        else:
            digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
            assert attributes == ""
            ours.append(f"'sha256-{digest}'")
    expected = _POLICY + ("; script-src " + " ".join(ours) if ours else "")
    assert _policies(text) == [expected]
    return checker


def _policies(text):
    """Returns all policies in the head of a page, as a browser reads them."""
    head = text.partition("</head>")[0]
    policies = re.findall('http-equiv="Content-Security-Policy" content="([^"]*)"', head)
    return [html.unescape(policy) for policy in policies]


def _page():
    numbers = [{NASTY: 1 / 3}, {NASTY: float("nan"), "n": NASTY}, {"n": 1}]
    image = page.Image("fig", NASTY, NASTY, NASTY, b"<svg/>", numbers)
    body = page.figures([image]) + page.paragraph(NASTY) + page.items([NASTY])
    body += page.table(NASTY, [NASTY, "n"], [["a", NASTY], ["a", "2"], ["b", "3"]], grouped=True)
    return page.page(NASTY, [page.Section("one", NASTY, body, [image])])


def test_text_of_tables_stays_text_figures_are_inside_and_a_name_is_not_repeated():
    text = _page()
    checked = check(text)
    assert "<b>" not in text and "&lt;script&gt;" in text
    assert {"figure", "table", "nav"} <= checked.tags and checked.ids == ["one", "fig"]
    (source,) = checked.sources
    kind, _, data = source.partition(",")
    assert kind == "data:image/svg+xml;base64" and base64.b64decode(data) == b"<svg/>"
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", text)
    firsts = [re.search(r"<td>(.*?)</td>", row)[1] for row in rows if "<td>" in row]
    assert firsts == ["0.3333", "", "", "a", "", "b"]


def test_data_of_an_app_are_data_and_its_script_alone_is_allowed():
    data = {"ids": ["</script><b>", "<!--", "\u2028&amp;", NASTY]}
    script = "let a = 1 < 2;"
    text = page.page("t", [page.Section("one", "One", "", script=script, data=data)])
    check(text)
    (written,) = re.findall(r'id="one-data">(.*?)</script>', text, re.DOTALL)
    assert json.loads(written) == data and not set(written) & set("<>&\u2028")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert _policies(text) == [f"{_POLICY}; script-src 'sha256-{digest}'"]
