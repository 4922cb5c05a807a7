"""One table of a saved state as an array that anything can read, and what its rows stand for."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from torch import Tensor

from recmill.data.encode.entries import Entries, form_of, read_entries
from recmill.data.encode.vocabulary import Vocabulary
from recmill.data.events.prepare import open_prepared_sequences
from recmill.data.prepared.parquet import write_entries
from recmill.embeddings.piece import What
from recmill.errors import ConfigError, DataError, RunError
from recmill.files import VALUES, finished_file, read_manifest, require_free_space
from recmill.settings.clicks import TrainConfig
from recmill.settings.columns import Schema
from recmill.settings.families import SEQUENCE, family_of_tree
from recmill.settings.sequences import SequenceConfig
from recmill.settings.tree import Tree, from_tree
from recmill.training.checkpoint.known_texts import entries_of_texts, find_texts
from recmill.training.checkpoint.reshard import refuse_existing
from recmill.training.checkpoint.saved_state import SavedState, refuse_missing, refuse_unknown_table
from recmill.training.vocabulary import find_vocabulary

_FLOAT_BYTES = 4
ITEM = "item"  # what the item vectors of a sequence model are called


@dataclass(frozen=True)
class Extracted:
    """What was written, and what there is to know of it."""

    shape: tuple[int, int]
    ids_path: Path | None
    note: str  # what the ids are


def extract(state: SavedState, table: str, out_path: Path, what: What = "weights") -> Extracted:
    """Write a table's rows in the order of their ids as .npy, and beside it the value that has each id."""
    if out_path.suffix != ".npy":
        raise RunError(f"--out {out_path} is to be an .npy file; give it that ending")
    ids_path = out_path.with_suffix(".ids.parquet")
    refuse_existing(out_path)
    refuse_existing(ids_path)
    read_manifest(state.directory)
    if what == "weights" and table == ITEM and (vectors := _item_vectors(state)) is not None:
        shape = _write_npy(out_path, (len(vectors), vectors.shape[1]), [vectors])
    else:
        refuse_missing(state, what)
        with state.tables(what) as saved:
            refuse_unknown_table(table, saved.names_in_order, state.directory)
            shape = _write_npy(out_path, saved.shape(table), saved.read_rows(table))
    try:
        note = _write_ids(state, table, shape[0], ids_path)
    except (DataError, ConfigError) as error:
        note = f"what ids stand for is not written: {error}"
    return Extracted(shape, ids_path if ids_path.exists() else None, note)


def _item_vectors(state: SavedState) -> Tensor | None:
    """The item vectors of a sequence model, where they are weights among the layers."""
    return next((tensor for name, tensor in state.layers("weights") if name == "item_vectors"), None)


def _write_npy(path: Path, shape: tuple[int, int], portions: Iterable[Tensor]) -> tuple[int, int]:
    require_free_space(path.parent, shape[0] * shape[1] * _FLOAT_BYTES, f"the table in {path.name}")
    path.parent.mkdir(parents=True, exist_ok=True)
    header = {"descr": "<f4", "fortran_order": False, "shape": shape}
    with finished_file(path) as scratch, scratch.open("wb") as file:
        np.lib.format.write_array_header_1_0(file, header)
        for rows in portions:
            file.write(rows.numpy().data)
    return shape


def _write_ids(state: SavedState, table: str, num_rows: int, path: Path) -> str:
    """The side file, if there is a vocabulary; what is to be said of the ids."""
    tree = state.settings()
    if tree is None:
        return f"no settings lie beside {state.directory}, so that nothing tells what ids stand for"
    if family_of_tree(tree) is SEQUENCE:
        return _write_items(tree, path)
    config = from_tree(TrainConfig, tree, where="the settings of the run")
    vocabulary = find_vocabulary(config)
    texts = find_texts(state, config, table)
    if vocabulary is None and texts:
        num_written = write_entries(path, [entries_of_texts(config, table, texts)], "hash", texts)
        return (
            f"ids were made by {_method_of(config, table)}; {path} has those of {len(texts):,} texts of {VALUES} "
            f"({num_written:,} lines), and values that are not in it may share them"
        )
    if vocabulary is None:
        return (
            f"ids were made by {_method_of(config, table)}, from which values cannot be recovered; "
            "encode the values you look for to find their rows"
        )
    stated = next((column.table_rows for column in vocabulary.columns if column.name == table), None)
    if stated != num_rows:
        raise DataError(f"the vocabulary gives {table} {stated} rows where it has {num_rows:,}; it is another one")
    return _write_values(vocabulary, config.data.schema_of_rows, table, path, texts)


def _write_items(tree: Tree, path: Path) -> str:
    """What the ids of items stand for: row 0 is no item, the last row the mask."""
    config = from_tree(SequenceConfig, tree, where="the settings of the run")
    num_items = open_prepared_sequences(Path(config.data.dir)).catalogue.write_items_of_ids(path)
    return f"what ids stand for is in {path} ({num_items:,} items from id 1 on; row 0 is none, the last row the mask)"


def _write_values(vocabulary: Vocabulary, schema: Schema, table: str, path: Path, texts: Mapping[int, bytes]) -> str:
    form, num_values, num_known = form_of(schema, table), 0, 0
    known = np.array(list(texts), np.uint64)

    def tallied() -> Iterator[Entries]:
        nonlocal num_values, num_known
        for entries in read_entries(vocabulary, schema, table):
            num_values += int(entries.is_value.sum())
            num_known += int(np.isin(entries.values[entries.is_value], known).sum())
            yield entries

    num_written = write_entries(path, tallied(), form, texts)
    told = f"what ids stand for is in {path} ({num_written:,} lines)"
    if form == "hash" and texts:
        told += f"; {num_known:,} of {num_values:,} strings have their text there, as {VALUES} keeps it, and all a hash"
    elif form == "hash":
        told += "; the column holds strings, of which a vocabulary keeps hashes (xxh64) and not the text"
    return told


def _method_of(config: TrainConfig, table: str) -> str:
    """The encoding of a column: its own, or that of the run."""
    columns = {column.name: column.encoding for column in config.data.schema_of_rows.of_role("category")}
    return columns.get(table) or config.encoding.category
