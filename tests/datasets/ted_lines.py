"""Writes TSV files of TedMultiTranslate's layout."""

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
