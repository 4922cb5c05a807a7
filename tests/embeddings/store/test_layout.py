import numpy as np
import pytest

from recmill.embeddings.store.layout import (
    RecordLayout,
    empty_arena,
    find_damaged,
    pack_records,
    seal_blocks,
    unpack_records,
)

LAYOUTS = [
    RecordLayout(1, 0),
    RecordLayout(16, 1),
    RecordLayout(128, 128),
    RecordLayout(128, 256),
    RecordLayout(3000, 1),
]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_records_fill_blocks_of_whole_pages(layout: RecordLayout) -> None:
    assert layout.block_bytes % 4096 == 0
    assert layout.per_block >= 1
    assert layout.per_block * layout.record_bytes + 8 <= layout.block_bytes
    if layout.record_bytes < 1024:
        assert layout.per_block * layout.record_bytes > 0.85 * layout.block_bytes


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("first", [0, 3])
def test_what_is_packed_is_unpacked(layout: RecordLayout, first: int) -> None:
    rng = np.random.default_rng(0)
    rows, slots = empty_arena(40, layout), rng.permutation(40)[:25]
    rows.weights[:], rows.state[:] = rng.standard_normal(rows.weights.shape), rng.standard_normal(rows.state.shape)
    blocks = np.zeros((layout.num_blocks(first + 25), layout.block_bytes // 4), np.float32)
    pack_records(rows, slots, blocks, layout.per_block, first)
    found, places = empty_arena(25, layout), first + np.arange(25)
    unpack_records(blocks, *np.divmod(places, layout.per_block), found, np.arange(25))
    assert found.weights.tobytes() == rows.weights[slots].tobytes()
    assert found.state.tobytes() == rows.state[slots].tobytes()


def test_any_flipped_bit_and_any_other_place_is_noticed() -> None:
    rng = np.random.default_rng(1)
    blocks = rng.integers(0, 2**63, (5, 512)).astype(np.uint64)
    seal_blocks(blocks, np.uint64(7), 3, 10)
    numbers, places = np.full(5, 3), 10 + np.arange(5)
    assert find_damaged(blocks, np.uint64(7), numbers, places) == -1
    for bit in rng.integers(0, 5 * 512 * 64, 400):
        block, word, shift = bit // (512 * 64), bit // 64 % 512, bit % 64
        blocks[block, word] ^= np.uint64(1) << np.uint64(shift)
        assert find_damaged(blocks, np.uint64(7), numbers, places) == block
        blocks[block, word] ^= np.uint64(1) << np.uint64(shift)
    assert find_damaged(blocks, np.uint64(8), numbers, places) == 0, "of another store"
    assert find_damaged(blocks, np.uint64(7), numbers + 1, places) == 0, "of another segment"
    swapped = blocks[[0, 2, 1, 3, 4]].copy()
    assert find_damaged(swapped, np.uint64(7), numbers, places) == 1, "of another place"
    assert find_damaged(np.zeros_like(blocks), np.uint64(7), numbers, places) == 0, "never written"
