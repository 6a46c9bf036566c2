"""Installs motley-tff. For use, `launch/run NAME` does this with the pinned requirements.txt."""

import pathlib
import re

import setuptools

ROOT = pathlib.Path(__file__).resolve().parent

# One line per command: `launch/run NAME` runs it.
COMMANDS = [
    "finetuning_trainer=trainers.finetuning_trainer:run",
    "generative_trainer=trainers.generative_trainer:run",
    "hypcluster_trainer=trainers.hypcluster_trainer:run",
    "knn_per_trainer=trainers.knn_per_trainer:run",
    "mtl_trainer=trainers.mtl_trainer:run",
    "motley_benchmark=launch.benchmarks.command:run",
    "motley_compare=launch.compare.command:run",
    "motley_doctor=launch.doctor:run",
    "motley_metrics=launch.metrics.command:run",
    "motley_generative=launch.generative.command:run",
    "motley_sweep=launch.sweeps.command:run",
    "motley_report=launch.report.command:run",
    "motley_rerun=launch.rerun:run",
    "motley_worker=launch.worker:run",
]

# What the code imports. requirements.txt pins these and all they need: after a change here,
# regenerate it (CONTRIBUTING.md says how).
REQUIREMENTS = [
    "absl-py",
    "defusedxml",
    "dp-accounting",
    "grpcio",
    "h5py",
    "ijson",
    "matplotlib",
    "numpy",
    "pandas",
    "pillow",
    "psutil",
    "pydicom",
    "PyYAML",
    "scikit-learn",
    "scipy",
    "submitit",
    "tensorboard",
    "tensorflow==2.14.*",
    "tensorflow-federated==0.87.0",
    "threadpoolctl",
    "tqdm",
    "XlsxWriter",
]

# What builds source distributions, and this project. launch/developers.in lists what tests it.
BUILD = ["setuptools", "wheel"]
# What reads Parquet; those who want it install it (`datasets.readers.rows` says how), and tests do.
PARQUET = ["pyarrow==20.0.0"]


def tasks() -> list[str]:
    """The entry points in which `motley_tff.create_task` finds our tasks, as others' packages."""
    text = (ROOT / "datasets" / "__init__.py").read_text(encoding="utf-8")
    names = re.findall(r'^    "(\w+)": "datasets\.\w+",$', text, re.MULTILINE)
    return [f"{name}=datasets:create" for name in names]


def read_version() -> str:
    """The version in motley_tff/__init__.py, read without importing TensorFlow and the rest."""
    text = (ROOT / "motley_tff" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "([^"]+)"$', text, re.MULTILINE)
    if match is None:
        raise RuntimeError('motley_tff/__init__.py: expected a line __version__ = "X.Y.Z"')
    return match.group(1)


setuptools.setup(
    name="motley-tff",
    version=read_version(),
    description="Personalized federated learning benchmark on TensorFlow Federated",
    license="Apache-2.0",
    python_requires=">=3.10,<3.12",
    install_requires=REQUIREMENTS,
    extras_require={"build": BUILD, "parquet": PARQUET},
    package_dir={"": "."},
    packages=setuptools.find_packages(
        include=[
            f"{package}{suffix}"
            for package in ("motley_tff", "datasets", "trainers", "launch")
            for suffix in ("", ".*")
        ]
    ),
    package_data={
        "datasets.synthetic": ["*.png", "*.yaml"],
        "launch": [
            "flagfiles/*",
            "grids/*",
            "experiments/*/*",
            "report/*.css",
            "report/*.js",
            "report/*.mplstyle",
            "report/*.yaml",
            "slurm/*",
        ],
        "motley_tff": [
            "tables/*.csv",
        ],
    },
    entry_points={
        "console_scripts": COMMANDS,
        "motley_tff.datasets": tasks(),
        "motley_tff.reports": [
            "html = launch.report.building:build",
            "compare = launch.compare.from_python:compare",
        ],
    },
)
