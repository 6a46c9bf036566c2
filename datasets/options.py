"""What a user says about data, as one frozen value. No TensorFlow here: flags become this first."""

import dataclasses
from typing import Literal, NamedTuple

from motley_tff.core.errors import UserError

Setting = Literal["cross_device", "cross_silo"]


class SiloShares(NamedTuple):
    """Shares of a silo's examples that validate and test, both above 0, together below 1."""

    valid: float = 0.15
    test: float = 0.15


PUBLISHED_SHARES = SiloShares()  # Motley's silo code: 15% validate, 15% test.
# In small letters, what most cells say that have no value; as a class or a text it is a word.
MISSING_WORDS = ("na", "n/a", "nan", "null", "none", "?", "-", "#n/a")


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """Which data to load and from where.

    Attributes:
      dataset_name: A name of `datasets.names()`.
      data_dir: Folder that holds data sets on disk, or None for the data set's default.
      data_file: One file to read in place of a search in `data_dir`, or None; `table` and `text`
        also take a folder of LEAF's.
      use_synthetic_data: Generate data with planted differences between clients; reads no disk.
      base_random_seed: Seeds synthetic data and the splits inside silos, never those of clients.
      partition: `natural` leaves a data set's clients; `iid` and others deal its examples again;
        see `datasets.dealing`.
      evaluation_partition: `same` leaves valid and test clients what `partition` gave them to be
        scored on; `iid` deals that at random, among each split's.
      num_clients: How many clients get them; None is as many as there were.
      min_examples: Of partitions by labels: draws that leave a client fewer are drawn again; None
        is what splits need.
      max_clients: Leaves out clients beyond so many.
      max_examples_per_client: Leaves out a client's examples beyond so many, of all its parts.
      memory_limit_gb: What examples that are dealt again may take.
      only_digits: EMNIST only: the ten digits in place of all 62 classes.
      group_key: EMNIST's `.npz` only: name of an array [n] of writers' groups, if they are known.
      gld23k: Landmarks only: the small variant of 203 classes and 233 clients.
      mask_padding: TedMulti only: leave padding out of the loss, where Motley's code counts it.
      setting: Of data that can be either: `cross_device` or `cross_silo`; None is the first.
      client_column: `table` and `text` only: the column that says whose a row is.
      label_column: The same, of the column to predict; `text` without one predicts next words.
      label_kind: `table` only: `classes` or `numbers`; None finds it out from the labels.
      feature_columns: `table` only: the columns that predict; None is all others.
      categorical_columns: `table` only: those of them whose values are categories, though they
        are numbers; columns with other than numbers are so anyway.
      text_column: `text` only: the column that holds the texts.
      time_column: `table` and `text` only: a column of dates or numbers; what is older personalizes
        or trains, what is newer evaluates.
      missing_values: `table` and `text` only: what a cell says that has no value, in capitals or
        not, beside an empty one; None is nothing of labels and texts, else `MISSING_WORDS`.
      image_size: `images` only: height and width in pixels to scale pictures to; None leaves them.
      model: `emnist`, `mnist`, `table`, `images` and `text` only: a name that the data set offers,
        or `module:function` of a model of one's own; None is the data set's default.
      model_sizes: The same, numbers of units a layer; None is the model's default.
      shakespeare_split: Shakespeare only: `roles` trains on some roles and tests others; `snippets`
        trains on all and tests them on other snippets; None is `roles`.
      min_characters: Shakespeare only: roles that say less are left out; None is 200.
      adni_split: ADNI only: `published`, which can cut through a scan; `subject` and None do not.
      val_split: Silos but ADNI's: share of each silo's examples that validate; None is 0.15.
      test_split: The same, of those that test.
      lam_svm: Vehicle only: adds 0.5 * lam_svm * ||w||^2 to the loss; None is 1e-4.
      l2_reg: Silos only: adds 0.5 * l2_reg * ||w||^2 to every model's training loss; None is 0.
    """

    dataset_name: str
    data_dir: str | None = None
    data_file: str | None = None
    use_synthetic_data: bool = False
    base_random_seed: int = 0
    partition: str = "natural"
    evaluation_partition: Literal["same", "iid"] = "same"
    num_clients: int | None = None
    min_examples: int | None = None
    max_clients: int | None = None
    max_examples_per_client: int | None = None
    memory_limit_gb: float = 4.0
    only_digits: bool = False
    group_key: str | None = None
    gld23k: bool = False
    mask_padding: bool = False
    adni_split: str | None = None
    shakespeare_split: Literal["roles", "snippets"] | None = None
    min_characters: int | None = None
    setting: Setting | None = None
    client_column: str | None = None
    label_column: str | None = None
    label_kind: Literal["classes", "numbers"] | None = None
    feature_columns: tuple[str, ...] | None = None
    categorical_columns: tuple[str, ...] = ()
    text_column: str | None = None
    time_column: str | None = None
    missing_values: tuple[str, ...] | None = None
    image_size: int | None = None
    model: str | None = None
    model_sizes: tuple[int, ...] | None = None
    val_split: float | None = None
    test_split: float | None = None
    lam_svm: float | None = None
    l2_reg: float | None = None

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
        given = {"valid": self.val_split, "test": self.test_split}
        shares = SiloShares(**{name: share for name, share in given.items() if share is not None})
        if not (min(shares) > 0 and sum(shares) < 1):
            raise UserError(
                f"--val_split={shares.valid:g} and --test_split={shares.test:g}: expected numbers "
                "above 0 that leave something to train on, together below 1, such as 0.15 and 0.15"
            )
        return shares


@dataclasses.dataclass(frozen=True)
class GeneratorOptions:
    """Which generator.

    Attributes:
      kind: `wgan_gp` or `ddpm`.
      width: Filters of the widest resolution: 32 of a critic, 16 of a U-Net.
      diffusion_steps: T of DDPM.
      sampling_steps: DDIM's steps; None for all of DDPM's.
      is_central: Train on all clients' pictures in one place.
      only_client: Train on those of this client alone.
      memory_limit_gb: What pictures in one place may take.
    """

    kind: Literal["wgan_gp", "ddpm"]
    width: int | None = None
    diffusion_steps: int = 1000
    sampling_steps: int | None = 50
    is_central: bool = False
    only_client: str | None = None
    memory_limit_gb: float = 4.0
