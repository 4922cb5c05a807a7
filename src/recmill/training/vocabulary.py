"""The vocabulary of a run: named in its settings, or beside the prepared rows that it was trained on."""

from pathlib import Path

from recmill.data.encode.vocabulary import COLUMNS, SLOTS, Vocabulary, vocabulary_identity
from recmill.data.prepared.checks import refuse_unlisted
from recmill.data.prepared.manifest import VOCABULARY
from recmill.errors import DataError
from recmill.files import has_manifest
from recmill.settings.clicks import TrainConfig
from recmill.settings.data import Verify
from recmill.verified import read_verified


def identity_of_vocabulary(config: TrainConfig) -> str:
    """Of the vocabulary by which the values of a run are encoded; empty without one, and if it is gone."""
    if config.encoding.category != "vocabulary":
        return ""
    return vocabulary_identity(Path(config.data.vocabulary or Path(config.data.dir) / VOCABULARY))


def find_vocabulary(config: TrainConfig) -> Vocabulary | None:
    """By which the values of a run were encoded; None if they were encoded otherwise."""
    if config.encoding.category != "vocabulary":
        return None
    if config.data.vocabulary:
        return open_listed(Path(config.data.vocabulary), config.data.verify)
    directory = Path(config.data.dir)
    if not has_manifest(directory):
        raise DataError(f"{directory}, whose vocabulary the run used, is no longer a prepared directory")
    return open_listed(directory / VOCABULARY, config.data.verify)


def open_listed(directory: Path, verify: Verify) -> Vocabulary:
    """A vocabulary whose files are those that the prepared directory around it lists, if it lies in one."""
    home = directory.parent
    if directory.name == VOCABULARY and has_manifest(home):
        manifest = read_verified(home, verify, under=VOCABULARY)
        refuse_unlisted((f"{VOCABULARY}/{name}" for name in (COLUMNS, SLOTS)), manifest["files"], home)
        return Vocabulary(directory, verify="never")  # its own checksum is of the same content, and slower
    return Vocabulary(directory, verify=verify)
