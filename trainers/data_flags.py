"""Flags that say which data, for the trainers and the doctor; `trainers.config` reads them."""

from collections.abc import Callable
from typing import Any

from absl import flags

import datasets
from datasets import label_partition
from datasets.options import MISSING_WORDS
from motley_tff.core.errors import UserError


def define() -> None:
    """Declares them."""
    flags.DEFINE_string("dataset_name", None, f"Which data: one of {', '.join(datasets.names())}.")
    flags.DEFINE_string("data_dir", None, "Directory that holds the data sets and their caches.")
    flags.DEFINE_string(
        "data_file",
        None,
        "A file to read in place of a search in --data_dir: .npz, .mat, .sqlite; of table and text "
        "the file itself: .csv, .tsv, .parquet, or LEAF's .json or its folder.",
    )
    flags.DEFINE_bool("use_synthetic_data", False, "Make data up instead; needs no files.")
    flags.DEFINE_bool("only_digits", False, "emnist: the ten digits in place of all 62 classes.")
    flags.DEFINE_string(
        "group_key",
        None,
        "emnist, from an .npz: its array that says each writer's known group, which clusters are "
        "compared with.",
    )
    flags.DEFINE_bool("gld23k", False, "landmark: the small variant, 203 classes and 233 clients.")
    flags.DEFINE_bool(
        "mask_padding", False, "ted_multi: leave padding out of the loss; Motley's code counts it."
    )
    flags.DEFINE_enum(
        "adni_split", None, ["subject", "published"],
        "adni: how a vendor's slices are split: by subject, as if not given, or by Motley's rule, "
        "which can put slices of one scan into several parts.",
    )  # fmt: skip
    flags.DEFINE_enum(
        "shakespeare_split", None, ["roles", "snippets"],
        "shakespeare: which are new in tests: roles, as if not given, or snippets of all roles.",
    )  # fmt: skip
    flags.DEFINE_integer(
        "min_characters", None, "shakespeare: leave roles out that say less (default: 200).",
        lower_bound=2,
    )  # fmt: skip
    _define_users_data()
    _define_partition()
    for name, what in (("val_split", "validate"), ("test_split", "test")):
        flags.DEFINE_float(
            name, None, "School, Vehicle, silos of cifar10, mnist and yours: share of each silo's "
            f"examples that {what} (default: 0.15).",
        )  # fmt: skip
    flags.DEFINE_float(
        "lam_svm", None, "vehicle: strength of the SVM's regularizer (default: 0.0001).",
        lower_bound=0.0,
    )  # fmt: skip
    flags.DEFINE_float(
        "l2_reg", None, "Silos: adds half of this times the squared norm of the weights to the "
        "training loss of every model (default: 0).",
        lower_bound=0.0,
    )  # fmt: skip
    register_check("dataset_name", datasets.check_name)


def _define_users_data() -> None:
    """Declares what table, images and text ask for."""
    for name, meaning in (
        ("client_column", "table, text: the column that says whose a row is."),
        (
            "label_column",
            "table, celeba: the column to predict; text: classes, else next words.",
        ),
        ("text_column", "text: the column that holds the texts."),
        ("time_column", "table, text: dates or numbers; older rows personalize, newer evaluate."),
    ):
        flags.DEFINE_string(name, None, meaning)
    flags.DEFINE_enum(
        "label_kind", None, ["classes", "numbers"],
        "table: what labels are; found out from them if not given.",
    )  # fmt: skip
    flags.DEFINE_list(
        "feature_columns", None, "table: columns that predict; all others if not given."
    )
    flags.DEFINE_list(
        "categorical_columns", [], "table: feature columns whose numbers name categories."
    )
    flags.DEFINE_list(
        "missing_values", None, "table, text: what cells say that have no value, in capitals or "
        "not, such as NA,-9; empty ones have none, too (default: of labels and texts nothing else, "
        f"of other columns {', '.join(MISSING_WORDS)}).",
    )  # fmt: skip
    flags.DEFINE_integer(
        "image_size", None, "images: scale pictures to so many pixels a side.", lower_bound=4,
        upper_bound=1024,
    )  # fmt: skip
    flags.DEFINE_enum(
        "setting", None, ["cross_device", "cross_silo"],
        "cifar10, mnist, table, images, text: what clients are (default: silos for mtl_trainer, "
        "else devices).",
    )  # fmt: skip
    flags.DEFINE_string(
        "model",
        None,
        "emnist, mnist, table, images, text: linear, mlp, cnn, lenet or lstm, where it fits; or "
        "module:function, a Keras model of your own.",
    )
    flags.DEFINE_list(
        "model_sizes", None, "Units of each layer of --model, such as 64,32 for an mlp."
    )
    flags.register_validator(
        "model_sizes",
        lambda texts: texts is None or (texts and all(t.isdecimal() and int(t) for t in texts)),
        "expected whole numbers above 0, such as 64,32",
    )


def _define_partition() -> None:
    """Declares who owns which examples."""
    flags.DEFINE_string(
        "partition",
        "natural",
        "natural: a data set's own clients. iid: its examples are pooled and dealt to the clients "
        "again, each as many as it had. By labels: classes:K (each owns K), dirichlet:ALPHA, "
        "classes:K+lognormal:MU,SIGMA.",
    )
    flags.DEFINE_enum(
        "evaluation_partition", "same", ["same", "iid"],
        "iid: what validation and test clients are scored on is dealt at random, whatever they "
        "train on.",
    )  # fmt: skip
    for name, meaning in (
        ("num_clients", "--partition: how many clients get examples (default: as many as had; "
         "cifar10: 10 silos or 100 devices)."),
        ("min_examples", "--partition to other clients: each gets so many at least, or it is drawn "
         "again."),
        ("max_clients", "Leave clients out beyond so many, the same ones under each seed."),
        ("max_examples_per_client", "Leave a client's examples out beyond so many."),
    ):  # fmt: skip
        flags.DEFINE_integer(name, None, meaning, lower_bound=1)
    register_check("partition", label_partition.check, after=": ")


def register_check(flag: str, check: Callable[[Any], object], after: str = "") -> None:
    """Has absl refuse what a check refuses, with its message, or the part after some text."""

    def is_valid(value: Any) -> bool:
        try:
            if value is not None:
                check(value)
        except UserError as error:
            text = str(error)
            raise flags.ValidationError(text.partition(after)[2] if after else text) from error
        return True

    flags.register_validator(flag, is_valid)
