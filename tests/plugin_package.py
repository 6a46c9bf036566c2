"""Packages of plug-ins as an install leaves them, in a folder that is put on PYTHONPATH."""

import itertools
import pathlib
import re

EXAMPLE = pathlib.Path(__file__).parents[1] / "launch" / "examples" / "thermostats"


def write_example(folder):
    """Writes the example's package, as it stands in the project, installed in a folder."""
    project = (EXAMPLE / "pyproject.toml").read_text()
    name, version = (re.search(rf'^{k} = "(.*)"', project, re.MULTILINE)[1]
                     for k in ("name", "version"))  # fmt: skip
    groups = re.findall(r'^\[project\.entry-points\."(.*?)"\]\n(.*?)\n\n', project, re.M | re.S)
    points = {group: dict(re.findall(r'^(\w+) = "(.*)"', text, re.M)) for group, text in groups}
    assert set(points) == {"motley_tff.datasets", "motley_tff.algorithms"}
    file = f"{name}.py"
    return write(folder, name, version, points, {file: (EXAMPLE / file).read_text()})


def write(folder, name, version, points, files):
    """Writes files and what a package's metadata say; returns the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in files.items():
        (folder / path).write_text(text)
    info = folder / f"{name}-{version}.dist-info"
    info.mkdir(exist_ok=True)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    (info / "METADATA").write_text(metadata)
    lines = (
        [f"[{group}]", *(f"{point} = {value}" for point, value in values.items()), ""]
        for group, values in points.items()
    )
    (info / "entry_points.txt").write_text("\n".join(itertools.chain(*lines)))
    return folder
