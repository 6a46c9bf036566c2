"""The explorer: its data exactly, and in a real browser what a person does with it."""

import contextlib
import re
from unittest import mock

import numpy as np
import pytest

from launch.report import building, comparisons, explorer, figures, page as report_page, runs
from tests.launch.report import browsers, written

NASTY = "<img src=x onerror=alert(1)>"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    root = tmp_path_factory.mktemp("runs")
    clients = {
        NASTY: (0.5, 0.25), "b": (0.25, 0.75), "c": (0.75, 0.75), "d": (0.1, 0.7),
        "e": (1 / 3, 1 / 3 - 1e-6), "f": (0.5, 0.9),
    }  # fmt: skip
    values = {c: {"0": before, "1": 0.5, "2": after} for c, (before, after) in clients.items()}
    tables = {"candidates": written.candidates({"test": values})}
    more = {
        "baseline_half": {c: before for c, (before, _) in clients.items()},
        "delta_half": {c: after - before for c, (before, after) in clients.items()},
    }
    written.run(root, "one", "fedavg+finetuning", clients, tables=tables, more=more)
    written.run(root, "two", "ditto", {c: (a, 1.0) for c, (a, _) in clients.items()})
    return root


def _section(root):
    return explorer.section(comparisons.compare(runs.find([str(root)])))


def test_runs_of_one_name_are_told_apart(tmp_path):
    for root in ("s0", "s1"):
        written.run(tmp_path / root, "same", "ditto", {"a": (0.5, 0.75)})
    section = _section(tmp_path)
    names = [run["name"] for run in section.data["runs"]]
    assert len(set(names)) == 2 and all(name.endswith("same") for name in names)


def test_a_run_that_is_too_large_is_named_and_takes_no_room(tmp_path, monkeypatch):
    for name, client in {"a": "a", "b": "<" * 1000, "c": "c"}.items():  # "<" takes six bytes.
        written.run(tmp_path, name, "ditto", {client: (0.5, 0.75)})
    texts = [report_page.data_text(run) for run in _section(tmp_path).data["runs"]]
    monkeypatch.setattr(explorer, "_MOST_BYTES", len(texts[0]) + len(texts[2]))
    section = _section(tmp_path)
    assert [run["name"][-1] for run in section.data["runs"]] == ["a", "c"]
    assert re.findall("<li>[^<]*, (.)<", section.body) == ["b"]
    # Its data take no more bytes than were counted, but for what is around the runs.
    around = len('{"runs":[,]}')
    assert len(report_page.data_text(section.data)) == explorer._MOST_BYTES + around
    monkeypatch.setattr(explorer, "_MOST_BYTES", 1)
    section = _section(tmp_path)
    assert not section.script and "Drag" not in section.body and section.body.count("<li>") == 3


@pytest.fixture(scope="module")
def opened():
    """Returns what opens a report; afterwards sees that its page said and asked for nothing."""
    path = browsers.find()
    if path is None:
        pytest.skip("no Chromium on this machine: the explorer was not opened")
    from playwright import sync_api

    said, asked = [], []

    @contextlib.contextmanager
    def show(address):
        said.clear()
        asked.clear()
        page.goto(address)
        page.wait_for_selector("#explorer-app canvas")
        yield page
        assert said == []
        assert [url for url in asked if not url.startswith("data:")] == [address]

    with sync_api.sync_playwright() as started:
        browser = started.chromium.launch(executable_path=path, args=["--no-sandbox"])
        page = browser.new_page()
        page.on("console", lambda message: said.append(message.text))
        page.on("pageerror", lambda error: said.append(str(error)))
        page.on("dialog", lambda dialog: said.append(dialog.message))
        page.on("request", lambda request: asked.append(request.url))
        yield show
        browser.close()


@pytest.fixture(scope="module")
def report(folder):
    """The address of a page of both runs, and of one where less is better, a client has no baseline
    and another diverged; of its figures, which take long, there is one.
    """
    # Baseline, candidates 1 and 2 (the chosen one), personalization examples.
    clients = {
        "a": (4.0, 1.0, 1.0, 5), "b": (1.0, 2.0, 2.5, 5), "c": (2.0, 2.0, 4.0, 5),
        "d": ("", 3.0, 1.0, 7), "e": (3.0, 3.5, "", 8), "f": (2.0, 1.0, 1.0, 9),
    }  # fmt: skip
    values = {
        c: {"0": before, "1": first, "2": two, "3": 1e30 * size}
        for c, (before, first, two, size) in clients.items()
    }
    written.run(
        folder, "errors", "ditto", {c: (row[0], row[2]) for c, row in clients.items()},
        metric="error", higher_is_better=False,
        tables={"candidates": written.candidates({"test": values})},
        more={"num_personalization_examples": {c: row[3] for c, row in clients.items()},
              "baseline_half": {c: row[0] for c, row in clients.items()},
              "delta_half": {c: row[0] - row[2] for c, row in clients.items() if c not in "de"}},
    )  # fmt: skip
    with mock.patch.object(figures, "KINDS", figures.KINDS[:1]):
        return building.build([str(folder)], folder / "report", "svg").page.as_uri()


def _choose(page, run):
    """Chooses one run alone."""
    names = page.get_by_label("Runs").locator("option").all_inner_texts()
    label = next(name for name in names if name.endswith(f" {run}"))
    page.get_by_label("Runs").select_option(label=label)


@pytest.fixture
def page(opened, report):
    with opened(report) as shown:
        _choose(shown, "one")
        yield shown


@pytest.fixture
def of_errors(opened, report):
    with opened(report) as page:
        _choose(page, "errors")
        yield page


def _status(page):
    return page.locator("#explorer [role=status]").inner_text()


def _listed(page):
    """Returns the cells of the table's rows."""
    rows = page.locator("#explorer tbody").first.locator("tr").all_inner_texts()
    return [row.split("\t") for row in rows]


def test_who_is_hurt_most(page):
    page.get_by_label("Select the hurt only").check()
    assert "2 of 6 (33.3%) selected" in _status(page)
    rows = _listed(page)
    assert len(rows) == 2 and rows[0][1] == NASTY
    _, _, _, size, evaluation, before, now, gain, hurt, every = rows[0]
    assert (size, evaluation, hurt) == ("10", "5", "yes")
    assert [float(x) for x in (before, now, gain)] == pytest.approx([0.5, 0.25, -0.25], abs=1e-4)
    assert [float(x) for x in every.split(", ")] == pytest.approx([0.5, 0.5, 0.25, 0.25], abs=1e-4)
    # Ids are text, whatever they say.
    assert page.locator("#explorer img").count() == 0
    # Who loses little is hurt, too, and the hurt come first.
    page.get_by_role("button", name="Select none").click()
    page.get_by_label("Select horizontally from").fill("0.3")
    page.keyboard.press("Tab")
    (_, *e), (_, *c) = [[row[1], float(row[7]), row[8]] for row in _listed(page)[1:3]]
    assert e == [pytest.approx(-1e-6, rel=0.1), "yes"] and c == [0, "no"]


def test_several_runs_and_axes(page):
    options = page.get_by_label("Runs").locator("option").all_inner_texts()
    options = [name for name in options if "errors" not in name]
    page.get_by_label("Runs").select_option(label=options)
    page.get_by_label("Horizontal axis").select_option(label="personalization examples")
    page.get_by_label("Vertical axis").select_option(label="value")
    slider = page.get_by_label("Candidate")
    before = slider.input_value()
    page.get_by_label("Runs").select_option([])
    page.get_by_label("Runs").select_option(label=options)
    assert slider.input_value() == before != "0"
    for by in ("run", "group", "hurt"):
        page.get_by_label("Colour").select_option(label=by)
    # Candidates go together by name: the second run has the chosen one alone.
    slider.focus()
    page.keyboard.press("ArrowLeft")
    assert slider.locator("xpath=following-sibling::output").inner_text() in (
        "candidate 2, personalized", "personalized, candidate 2"
    )  # fmt: skip
    page.get_by_label("Select horizontally to").fill("20")
    page.keyboard.press("Tab")
    assert "4 of 12" in _status(page)


def test_who_has_no_known_gain_comes_last(of_errors):
    of_errors.get_by_label("Horizontal axis").select_option(label="personalization examples")
    of_errors.get_by_label("Vertical axis").select_option(label="value")
    of_errors.get_by_label("Select horizontally to").fill("9")
    of_errors.keyboard.press("Tab")
    rows = _listed(of_errors)
    assert [row[1] for row in rows] == ["c", "b", "f", "a", "d"]
    assert rows[-1][5] == rows[-1][7] == "" and rows[-1][8] == "no"
    # Of c, b, f and a: 2, 1, 2, 4 before and 4, 2.5, 1, 1 now.
    assert (
        "5 of 6 (83.3%) selected: mean 2.25 before, 2.125 now "
        "(without 1 whose gain is not known), hurt 2 of 5 (40.0%)"
    ) in _status(of_errors)
    assert [float(row[7]) for row in rows[:4]] == pytest.approx([-2, -1.5, 1, 3], abs=1e-4)
    # A candidate that diverges is an unlike range: the others can be read beside it.
    every = [float(x) for x in rows[1][9].split(", ")]
    assert every[:3] + every[4:] == pytest.approx([1, 2, 2.5, 2.5], abs=1e-4)
    assert every[3] == pytest.approx(5e30, rel=1e-3)
    # Of those of whom nothing is known there is no mean.
    of_errors.get_by_label("Select horizontally to").fill("7")
    of_errors.get_by_label("Select horizontally from").fill("6")
    of_errors.keyboard.press("Tab")
    assert "1 of 6 (16.7%) selected: mean unknown (without 1 whose" in _status(of_errors)
    # One who diverged is hurt: it comes first.
    of_errors.get_by_role("button", name="Select none").click()
    of_errors.get_by_label("Select the hurt only").check()
    assert [row[1] for row in _listed(of_errors)] == ["e", "c", "b"]


def test_paper_has_the_figures_without_the_explorer(page):
    explorer_, figure = page.locator("#explorer"), page.locator("figure img").first
    assert explorer_.is_visible() and figure.is_visible()
    assert figure.evaluate("image => image.naturalWidth") > 300, "the picture can be shown"
    page.emulate_media(media="print")
    assert not explorer_.is_visible() and figure.is_visible()
    sections = page.locator("section").all()
    hidden = [section.get_attribute("id") for section in sections if not section.is_visible()]
    assert hidden == ["explorer"]
    page.emulate_media(media="screen")


def test_the_slider_changes_rows(of_errors):
    of_errors.get_by_label("Select the hurt only").check()
    slider = of_errors.get_by_label("Candidate")
    slider.focus()
    for _ in range(3):  # Past candidates 3 and 2.
        of_errors.keyboard.press("ArrowLeft")
    assert slider.locator("xpath=following-sibling::output").inner_text() == "candidate 1"
    current = of_errors.locator("#explorer tr[aria-current]").inner_text().split("\t")
    assert (current[1], current[3]) == ("candidate 1", "33.3")
    rows = _listed(of_errors)
    assert [row[1] for row in rows] == ["b", "e"]
    now_and_gain = [[float(x) for x in row[5:8]] for row in rows]
    np.testing.assert_allclose(now_and_gain, [[1, 2, -1], [3, 3.5, -0.5]], atol=1e-4)
    status = _status(of_errors)
    assert "2 of 6 (33.3%) selected: mean 2 before, 2.75 now, hurt 2 of 2 (100.0%)" in status


def test_gains_over_the_baseline_are_of_other_examples_or_not_drawn(page):
    """On the same examples, chance alone lets those gain that were weak."""
    assert "of other examples than these" in page.locator("#explorer .note").first.inner_text()
    field = page.get_by_label("Select horizontally from")
    field.fill("0")
    page.keyboard.press("Tab")
    assert "6 of 6" in _status(page)
    _choose(page, "two")  # It lacks both halves.
    field.fill("0")
    page.keyboard.press("Tab")
    assert "No client is in the box" in _status(page)


def test_limits_are_filled_in_after_a_drag_and_typed(of_errors):
    canvas = of_errors.locator("#explorer canvas")
    canvas.scroll_into_view_if_needed()
    area = canvas.bounding_box()
    # Axes: baselines 1 to 4, gains -2 to 3. Drawn 760 wide: 64 and 24 left and right of them.
    zoom = area["width"] / 760

    def at(x, y):
        across, down = 64 + (x - 1) / 3 * 672, 24 + (3 - y) / 5 * 332
        return area["x"] + across * zoom, area["y"] + down * zoom

    # Dragged from below right: limits stand in their order all the same.
    of_errors.mouse.move(*at(2.5, -2.1))
    of_errors.mouse.down()
    of_errors.mouse.move(*at(0.9, 0.5))
    of_errors.mouse.up()
    labels = ("horizontally from", "horizontally to", "vertically from", "vertically to")
    limits = [float(of_errors.get_by_label(f"Select {label}").input_value()) for label in labels]
    assert limits == pytest.approx([0.9, 2.5, -2.1, 0.5], abs=0.02)
    assert [row[1] for row in _listed(of_errors)] == ["c", "b"]
    of_errors.get_by_role("button", name="Select none").click()
    assert "Nothing is selected" in _status(of_errors)
    field = of_errors.get_by_label("Select horizontally from")
    field.focus()
    of_errors.keyboard.type("3.5")
    of_errors.keyboard.press("Tab")
    assert "1 of 6" in _status(of_errors) and _listed(of_errors)[0][1] == "a"
    # Limits of one axis are none of another's.
    of_errors.get_by_label("Horizontal axis").select_option(label="evaluation examples")
    assert field.input_value() == "" and "Nothing is selected" in _status(of_errors)
