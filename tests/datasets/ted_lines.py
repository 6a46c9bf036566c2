"""Turns TED sentences in line files into TSV files of TedMultiTranslate's layout.

The line files ({dev,test}.{en,es,usr}, aligned by line, see the data folder's README) have four
sentence pairs of each talk: too few for a client of twenty sentences. Several talks, neighbours by
name and so often of one speaker, are joined into one `talk_name`. The sentences stay as they are.
"""

import itertools

LANGUAGES = (
    "ar az be bg bn bs calv cs da de el en eo es et eu fa fi fr fr-ca gl he hi hr hu hy id it ja "
    "ka kk ko ku lt mk mn mr ms my nb nl pl pt pt-br ro ru sk sl sq sr sv ta th tr uk ur vi zh "
    "zh-cn zh-tw"
).split()
COLUMNS = ("talk_name", *LANGUAGES)


def row(**cells):
    """Returns a line of the file, every cell that is not given untranslated."""
    return "\t".join(cells.get(column, "__NULL__") for column in COLUMNS) + "\n"


def write_tsv(path, rows):
    """Writes a file of rows, each `{column: text}`."""
    path.write_text("\t".join(COLUMNS) + "\n" + "".join(row(**r) for r in rows), encoding="utf-8")
    return path


def write_joined_talks(source, output, talks_per_client=8):
    """Writes `all_talks_{train,dev,test}.tsv` from the line files.

    Args:
      source: Folder of the line files.
      output: Folder of the TSV files.
      talks_per_client: How many talks are joined; each has four sentence pairs.

    Returns:
      The three files.
    """
    pairs = sorted(_read(source), key=lambda pair: pair["talk_name"])
    talks = [list(rows) for _, rows in itertools.groupby(pairs, key=lambda p: p["talk_name"])]
    joined = [
        [{**pair, "talk_name": talks[i][0]["talk_name"]} for talk in talks[i : i + talks_per_client]
         for pair in talk]
        for i in range(0, len(talks), talks_per_client)
    ]  # fmt: skip
    splits = {"train": [], "dev": [], "test": []}
    for i, rows in enumerate(joined):
        # Of every seven clients, one validates and one tests.
        splits["dev" if i % 7 == 3 else "test" if i % 7 == 5 else "train"] += rows
    return [write_tsv(output / f"all_talks_{s}.tsv", rows) for s, rows in splits.items()]


def _read(source):
    for part in ("dev", "test"):
        columns = {"en": "en", "es": "es", "usr": "talk_name"}
        lines = [
            (source / f"{part}.{suffix}").read_text(encoding="utf-8").split("\n")
            for suffix in columns
        ]
        for cells in zip(*lines, strict=True):
            if all(cells):
                yield dict(zip(columns.values(), cells, strict=True))
