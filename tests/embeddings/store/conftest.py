import pytest

from recmill.embeddings.store import log, segment


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Segments of a few blocks, of which each is written at once."""
    monkeypatch.setattr(segment, "_CHUNK_BLOCKS", 1)
    monkeypatch.setattr(log, "_LEAST_SEGMENT_BYTES", 8192)
    monkeypatch.setattr(log, "_MOST_SEGMENTS", 4)
    monkeypatch.setattr(log, "_READ_BLOCKS", 2)
