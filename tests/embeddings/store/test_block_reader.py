import os
from pathlib import Path

import numpy as np
import pytest

from recmill.embeddings.store.block_reader import BlockReader, ShortReadError, open_direct


@pytest.mark.parametrize("asynchronous", [True, False])
@pytest.mark.parametrize("count", [1, 7, 3000])
def test_blocks_come_from_where_they_are_asked_for(tmp_path: Path, asynchronous: bool, count: int) -> None:
    rng = np.random.default_rng(0)
    contents = [rng.integers(0, 256, (50, 4096), np.uint8) for _ in range(3)]
    files = []
    for i, content in enumerate(contents):
        (tmp_path / str(i)).write_bytes(content.tobytes())
        files.append(open_direct(tmp_path / str(i), os.O_RDONLY))
    reader = BlockReader(4096, asynchronous=asynchronous)
    which, blocks = rng.integers(0, 3, count), rng.integers(0, 50, count)
    found = reader.read(np.array(files)[which], blocks * 4096)
    assert all((found[i] == contents[which[i]][blocks[i]]).all() for i in range(count))
    with pytest.raises(ShortReadError) as error:
        reader.read(np.array(files)[[0, 1, 2]], np.array([0, 49, 50]) * 4096)
    assert error.value.request == 2
    assert (reader.read(np.array(files[:1]), np.array([4096]))[0] == contents[0][1]).all(), "after an error"
    reader.close()
    for file in files:
        os.close(file)
