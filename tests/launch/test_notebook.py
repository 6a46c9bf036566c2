"""The notebook runs from its first cell to its last, and says who is hurt."""

import pathlib
import re

import nbclient
import nbformat
import pytest

_NOTEBOOK = pathlib.Path(__file__).parents[2] / "launch" / "notebooks" / "who_is_hurt.ipynb"


@pytest.mark.slow
def test_the_notebook_says_who_is_hurt(tmp_path):
    notebook = nbformat.read(_NOTEBOOK, as_version=4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "outputs are not kept"
    resources = {"metadata": {"path": str(tmp_path)}}
    nbclient.NotebookClient(notebook, timeout=600, resources=resources).execute()
    outputs = [output for cell in notebook.cells for output in cell.get("outputs", ())]
    text = "".join(output.get("text", "") for output in outputs)
    hurt, schools = map(int, re.search(r"(\d+) of (\d+) schools are hurt", text).groups())
    assert 0 < hurt < schools == 30
    assert sum("image/png" in output.get("data", {}) for output in outputs) == 3
