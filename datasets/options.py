"""What a user says about data, as one frozen value. No TensorFlow here: flags become this first.

Each field is an option: which data sets have it, its default and bounds, its flag and help.
"""

import dataclasses
import difflib
from typing import Any, Literal, NamedTuple

from datasets import label_partition
from motley_tff.core import errors, options
from motley_tff.core.errors import UserError
from motley_tff.core.options import BELOW_1, option
from motley_tff.core.task import Setting as Setting
from motley_tff.generative.ddpm import FEWEST_STEPS

# Data sets whose clients are silos, the same ones in training and evaluation.
CROSS_SILO = ("adni", "school", "vehicle")
# A user's data, whose clients are devices or silos as the user says.
USERS_DATA = ("images", "table", "text")
# Examples without owners, which are dealt to as many devices or silos as the user says.
DEALT = ("cifar10",)
# What is either devices or silos.
EITHER_SETTING = (*DEALT, "mnist", *USERS_DATA)
# Data whose model a flag chooses.
_WITH_MODELS = ("emnist", "mnist", *USERS_DATA)
# Data whose clients can be held out by name: devices, which have names before examples are dealt.
NAMED_DEVICES = (
    "celeba", "emnist", "landmark", "mnist", "sent140", "shakespeare", "stackoverflow", "ted_multi",
    *USERS_DATA,
)  # fmt: skip
# Data whose silos' examples are split by shares.
_WITH_SHARES = ("school", "vehicle", *EITHER_SETTING)


# Which are new in tests: roles of plays, or snippets of all roles.
ShakespeareSplit = Literal["roles", "snippets"]


class SiloShares(NamedTuple):
    """Shares of a silo's examples that validate and test, both above 0, together below 1."""

    valid: float = 0.15
    test: float = 0.15


PUBLISHED_SHARES = SiloShares()  # Motley's silo code: 15% validate, 15% test.
# In small letters, what most cells say that have no value; as a class or a text it is a word.
MISSING_WORDS = ("na", "n/a", "nan", "null", "none", "?", "-", "#n/a")
# In which order a date has its parts.
DATE_ORDERS = ("day_first", "month_first", "year_first")
# Delimiters by name, which a shell writes more easily than as they are.
DELIMITER_NAMES = {"tab": "\t"}
# Options that say where data are, who owns them, how they are learned from or what a class is
# called. All others decide which examples a run has, and in which part.
_OF_NO_EXAMPLES = (
    "dataset_name", "data_dir", "data_file", "base_random_seed", "data_seed", "memory_limit_gb",
    "group_key", "mask_padding", "setting", "label_kind", "model", "model_sizes", "lam_svm",
    "l2_reg",
)  # fmt: skip


def check_delimiter(text: str) -> None:
    """Raises a UserError if a text is no delimiter of a table's cells."""
    mark = DELIMITER_NAMES.get(text, text)
    if len(mark) != 1 or mark.isalnum() or mark in '"\r\n':
        expected = (
            f"one character that is no letter, digit or quote, or {', '.join(DELIMITER_NAMES)}"
        )
        raise UserError(errors.name("delimiter"), repr(text), expected)


def check_date_format(text: str) -> None:
    """Raises a UserError if a text says nothing of how dates are written."""
    if text not in DATE_ORDERS and "%" not in text:
        near = difflib.get_close_matches(text, DATE_ORDERS, 1)
        expected = f"{', '.join(DATE_ORDERS)}, or a pattern such as '%d %B %Y'"
        advice = f"did you mean {near[0]}?" if near else ""
        raise UserError(errors.name("date_format"), text, expected, advice)


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """Which data to load, from where, and who owns them."""

    dataset_name: str
    data_dir: str | None = option(
        None, "Directory of the data sets and their caches", everyday="data"
    )
    data_file: str | None = option(
        None,
        "File to read in place of a search in --data_dir: .npz, .mat, .sqlite; for table and text "
        ".csv, .tsv, .parquet, or LEAF's .json or its folder",
        everyday="data",
    )
    use_synthetic_data: bool = option(False, "Make data up; needs no files", everyday="data")
    base_random_seed: int = options.seed(everyday="data")
    data_seed: int | None = option(
        None,
        "Seed of random choices of data: silos' parts, --partition, what is made up; devices' "
        "splits are the same under every seed (default: --base_random_seed)",
        upper=options.MAX_SEED,
    )
    partition: str = option(
        "natural",
        "Who owns which examples: natural (a data set's own clients), iid (pooled and dealt to the "
        "clients again, each as many as it had), or by labels classes:K (each client has K), "
        "dirichlet:ALPHA, classes:K+lognormal:MU,SIGMA",
        parse=label_partition.check,
        everyday="data",
    )
    evaluation_partition: Literal["same", "iid"] = option(
        "same",
        "iid: what validation and test clients are scored on is dealt at random, whatever they "
        "train on",
    )
    valid_clients: tuple[str, ...] | None = option(
        None,
        "Devices that validate, and never train: names, group=VALUE for all of a known group, or a "
        "file that ends in .txt with a name a line (default: a share of the others)",
        owners=NAMED_DEVICES,
    )
    test_clients: tuple[str, ...] | None = option(
        None,
        "Devices that test, and never train, as --valid_clients names them; test_clients=group=es "
        "of ted_multi leaves Spanish out of training",
        owners=NAMED_DEVICES,
    )
    stratify: bool = option(
        False,
        "cifar10, mnist, table, images and text with classes: where a silo's or client's examples "
        "are shuffled into parts, each part has each class in its share",
        owners=EITHER_SETTING,
    )
    num_clients: int | None = option(
        None,
        "How many clients --partition deals to (default: as many as there were; cifar10: 10 silos "
        "or 100 devices)",
        lower=2,
        everyday="data",
    )
    min_examples: int | None = option(
        None,
        "--partition to other clients: each gets so many at least, or it is drawn again",
        lower=1,
    )
    max_clients: int | None = option(
        None,
        "Most clients to use, the same ones under each seed",
        lower=1,
        everyday="data",
    )
    max_examples_per_client: int | None = option(
        None,
        "Most examples to use of each client",
        lower=1,
        everyday="data",
    )
    memory_limit_gb: float = options.memory_limit()
    only_digits: bool = option(
        False, "emnist: the ten digits in place of all 62 classes", owners=("emnist",)
    )
    group_key: str | None = option(
        None,
        "emnist, from an .npz: its array [n] that says each writer's known group, which clusters "
        "are compared with",
        owners=("emnist",),
    )
    gld23k: bool = option(
        False, "landmark: the small variant, 203 classes and 233 clients", owners=("landmark",)
    )
    mask_padding: bool = option(
        False,
        "ted_multi: leave padding out of the loss; Motley's code counts it",
        owners=("ted_multi",),
    )
    adni_split: Literal["subject", "published"] = option(
        "subject",
        "adni: how a vendor's slices are split: by subject, or by Motley's rule, which can put "
        "slices of one scan into several parts",
        owners=("adni",),
    )
    shakespeare_split: ShakespeareSplit = option(
        "roles",
        "shakespeare: which are new in tests: roles, or snippets of all roles",
        owners=("shakespeare",),
    )
    min_characters: int = option(
        200, "shakespeare: leave roles out that say less", lower=2, owners=("shakespeare",)
    )
    group_column: str | None = option(
        None,
        "table, text: column with the known group of each row's client, such as a country, which "
        "predicts nothing; --test_clients can name groups",
        owners=("table", "text"),
    )
    setting: Setting | None = option(
        None,
        "What clients of cifar10, mnist, table, images and text are (default: silos for "
        "mtl_trainer, else devices)",
        owners=EITHER_SETTING,
        everyday="data",
    )
    client_column: str | None = option(
        None,
        "Column with the client of each row (table, text)",
        owners=("table", "text"),
        everyday="data",
    )
    label_column: str | None = option(
        None,
        "Column to predict (table, text, celeba); text without it predicts next words",
        owners=("celeba", "table", "text"),
        everyday="data",
    )
    label_kind: Literal["classes", "numbers"] | None = option(
        None, "table: what labels are; found out from them if not given", owners=("table",)
    )
    feature_columns: tuple[str, ...] | None = option(
        None, "table: columns that predict; all others if not given", owners=("table",)
    )
    ignore_columns: tuple[str, ...] = option(
        (),
        "table: columns that do not predict, such as names and row numbers",
        owners=("table",),
        everyday="data",
    )
    categorical_columns: tuple[str, ...] = option(
        (), "table: feature columns whose numbers name categories", owners=("table",)
    )
    text_column: str | None = option(
        None,
        "Column with the texts (text)",
        owners=("text",),
        everyday="data",
    )
    time_column: str | None = option(
        None,
        "table, text: dates or numbers; older rows personalize, newer evaluate",
        owners=("table", "text"),
    )
    date_format: str | None = option(
        None,
        "table, text: how dates are written: day_first, as 31.3.2024; month_first; year_first; or "
        "a pattern, as '%d %B %Y'. A table's columns of dates become numbers, of days",
        parse=check_date_format,
        owners=("table", "text"),
    )
    delimiter: str | None = option(
        None,
        "table, text: the character between a text file's cells, or tab (default: the one of "
        "comma, semicolon, tab and bar that its header has most of)",
        parse=check_delimiter,
        owners=("table", "text"),
    )
    decimal: Literal[".", ","] | None = option(
        None,
        "table, text: the decimal mark of numbers (default: each column's own)",
        owners=("table", "text"),
    )
    missing_values: tuple[str, ...] | None = option(
        None,
        "table, text: what cells say that have no value, in capitals or not, such as NA,-9; empty "
        "ones have none, too (default: of labels and texts nothing else, of other columns "
        f"{', '.join(MISSING_WORDS)})",
        owners=("table", "text"),
    )
    image_size: int | None = option(
        None,
        "images: scale pictures to so many pixels a side",
        lower=4,
        upper=1024,
        owners=("images",),
    )
    model: str | None = option(
        None,
        "Model of emnist, mnist, table, images or text: linear, mlp, cnn, lenet or lstm, where it "
        "fits; or module:function, a Keras model of your own",
        owners=_WITH_MODELS,
        everyday="data",
    )
    model_sizes: tuple[int, ...] | None = option(
        None,
        "Units of each layer of --model, such as 64,32 for an mlp",
        lower=1,
        owners=_WITH_MODELS,
        may_repeat=True,
    )
    val_split: float = option(
        PUBLISHED_SHARES.valid,
        "School, Vehicle, silos of cifar10, mnist and yours: share of each silo's examples that "
        "validate",
        upper=BELOW_1,
        owners=_WITH_SHARES,
    )
    test_split: float = option(
        PUBLISHED_SHARES.test,
        "School, Vehicle, silos of cifar10, mnist and yours: share of each silo's examples that "
        "test",
        upper=BELOW_1,
        owners=_WITH_SHARES,
    )
    lam_svm: float = option(1e-4, "vehicle: strength of the SVM's regularizer", owners=("vehicle",))
    l2_reg: float = option(
        0.0,
        "Silos: adds half of this times the squared norm of the weights to the training loss of "
        "every model",
        owners=(*CROSS_SILO, *EITHER_SETTING),
    )

    @property
    def seed(self) -> int:
        """The seed of the random choices of data."""
        return self.base_random_seed if self.data_seed is None else self.data_seed

    @property
    def deciding(self) -> dict[str, Any]:
        """The options that decide which examples a run has, as JSON has them: those of two runs are
        compared.
        """
        values = {n: v for n, v in vars(self).items() if n not in _OF_NO_EXAMPLES}
        return {n: list(v) if isinstance(v, tuple) else v for n, v in values.items()}

    @property
    def missing_labels(self) -> frozenset[str]:
        """What stands for no label or text, in small letters; an empty cell does, too."""
        return frozenset(word.strip().lower() for word in self.missing_values or ())

    @property
    def missing_cells(self) -> frozenset[str]:
        """What stands for no value of a feature, no client and no time, in small letters."""
        return frozenset(MISSING_WORDS) if self.missing_values is None else self.missing_labels

    @property
    def silo_shares(self) -> SiloShares:
        """The shares of `val_split` and `test_split`; UserError if they leave a part nothing."""
        shares = SiloShares(self.val_split, self.test_split)
        if min(shares) > 0 and sum(shares) < 1:
            return shares
        fields = {"val_split": self.val_split, "test_split": self.test_split}
        # The one that is nothing, else the larger one.
        wrong, other = sorted(fields, key=lambda field: (fields[field] > 0, -fields[field]))
        beside = f"{options.name_of(self, other)}={fields[other]:g}"
        expected = f"a share above 0 that with {beside} leaves something to train on"
        raise UserError(options.name_of(self, wrong), fields[wrong], expected)


# Filters of the widest resolution, of a generator whose width is not set.
WIDTHS = {"wgan_gp": 32, "ddpm": 16}


@dataclasses.dataclass(frozen=True)
class GeneratorOptions:
    """Which generator is trained, and on whose pictures."""

    kind: Literal["wgan_gp", "ddpm"] = option(
        "wgan_gp", "What is trained", "generator", everyday="training"
    )
    width: int | None = option(
        None,
        "Filters of the widest resolution (default: "
        f"{', '.join(f'{kind} {width}' for kind, width in WIDTHS.items())})",
        "generator_width",
        lower=1,
    )
    diffusion_steps: int = option(1000, "ddpm: its times", lower=FEWEST_STEPS, owners=("ddpm",))
    sampling_steps: int = option(
        50, "ddpm: steps of DDIM that make a picture; 0 for all of DDPM's", owners=("ddpm",)
    )
    is_central: bool = False
    only_client: str | None = option(None, "Train on this client's pictures alone, of its name")
    memory_limit_gb: float = options.memory_limit()

    def check(self) -> None:
        """Raises a UserError if options contradict each other."""
        options.check_owners(self, options.name_of(self, "kind"), self.kind)
        if self.is_central and self.only_client is not None:
            name, central = options.name_of(self, "only_client"), errors.name("algorithm")
            expected = f"no {central}=centralized beside it, which trains on all clients' pictures"
            raise UserError(name, self.only_client, expected, "leave one of them out")
        if self.sampling_steps > self.diffusion_steps:
            most = f"{options.name_of(self, 'diffusion_steps')}={self.diffusion_steps}"
            name = options.name_of(self, "sampling_steps")
            raise UserError(name, self.sampling_steps, f"at most {most}")
        name, width = options.name_of(self, "width"), self.width
        if width is not None and self.kind == "ddpm" and width % 8:
            raise UserError(name, width, "a multiple of 8, as ddpm normalizes groups of filters")
        if width is not None and self.kind == "wgan_gp" and width < 2:
            raise UserError(name, width, "2 or more, as a layer of wgan_gp has half as many")
