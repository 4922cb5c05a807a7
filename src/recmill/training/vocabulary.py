"""The vocabulary of a run: named in its settings, or beside the prepared rows that it was trained on."""

from pathlib import Path

from recmill.data.encode.vocabulary import Vocabulary
from recmill.data.prepared.manifest import VOCABULARY
from recmill.errors import DataError
from recmill.files import has_manifest
from recmill.settings.clicks import TrainConfig


def find_vocabulary(config: TrainConfig) -> Vocabulary | None:
    """By which the values of a run were encoded; None if they were encoded otherwise."""
    if config.encoding.category != "vocabulary":
        return None
    if config.data.vocabulary:
        return Vocabulary(Path(config.data.vocabulary))
    directory = Path(config.data.dir)
    if not has_manifest(directory):
        raise DataError(f"{directory}, whose vocabulary the run used, is no longer a prepared directory")
    return Vocabulary(directory / VOCABULARY)
