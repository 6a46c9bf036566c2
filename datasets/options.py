"""What a user says about data, as one frozen value. No TensorFlow here: flags become this first."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class DataOptions:
    """Which data to load and from where.

    Attributes:
      dataset_name: A name of `datasets.names()`.
      data_dir: Folder that holds data sets on disk, or None for the data set's default.
      data_file: One file to read in place of a search in `data_dir`, or None.
      use_synthetic_data: Generate data with planted differences between clients; reads no disk.
      base_random_seed: Seeds synthetic data and the splits inside silos. Splits of a cross-device
        population into train, valid and test clients never depend on it.
      only_digits: EMNIST only: the ten digits in place of all 62 classes.
      gld23k: Landmarks only: the small variant of 203 classes and 233 clients.
      adni_split: ADNI only: `subject`, or `published` for Motley's rule, in which slices of one
        scan can be in several parts; None is `subject`.
    """

    dataset_name: str
    data_dir: str | None = None
    data_file: str | None = None
    use_synthetic_data: bool = False
    base_random_seed: int = 0
    only_digits: bool = False
    gld23k: bool = False
    adni_split: str | None = None
