"""Segments of any format to raw columns, chunk by chunk and in their order, read ahead by a pool of threads."""

from collections import deque
from collections.abc import Callable, Generator, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import replace
from functools import partial
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from recmill.data.logs.formats import FORMATS
from recmill.data.logs.raw_format import RawChunk, RawSegment
from recmill.data.text.fields import RawColumns
from recmill.settings.columns import Schema

T = TypeVar("T")
N = TypeVar("N", bound=np.generic)

CHUNK_BYTES = 8 << 20


def read_raw(segment: RawSegment, schema: Schema) -> RawChunk:
    """The rows of a segment, each column in one piece of memory, and the first of its bad lines."""
    chunk = FORMATS[schema.format].read(segment, schema)
    labels, numbers, values, weights = chunk.raw
    return replace(chunk, raw=RawColumns(labels, _by_column(numbers), _by_column(values), weights))


def _by_column(array: NDArray[N]) -> NDArray[N]:
    """The array itself if its columns are in one piece each, or a copy of which that is true."""
    return array if array.strides[0] == array.itemsize else np.asfortranarray(array)


def read_chunks(
    segment: RawSegment, schema: Schema, pool: ThreadPoolExecutor, *, num_ahead: int
) -> Generator[RawChunk]:
    """The chunks of a segment in their order, at most `num_ahead` of them in memory or in the making."""
    yield from read_parts(segment, partial(read_raw, schema=schema), pool, num_ahead=num_ahead)


def read_parts(
    segment: RawSegment, read: Callable[[RawSegment], T], pool: ThreadPoolExecutor, *, num_ahead: int
) -> Generator[T]:
    """The same of whatever is made of a part of a segment."""
    yield from read_ahead((partial(read, part) for part in segment.cut(CHUNK_BYTES)), pool, num_ahead)


def read_ahead(tasks: Iterable[Callable[[], T]], pool: ThreadPoolExecutor, num_ahead: int) -> Generator[T]:
    """What the tasks give, in their order, at most `num_ahead` of them done or under way."""
    waiting: deque[Future[T]] = deque()
    try:
        for task in tasks:
            waiting.append(pool.submit(task))
            if len(waiting) == num_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    finally:
        # whoever stops early closes the source next, and nobody may read it then
        wait([chunk for chunk in waiting if not chunk.cancel()])


def compile_reader(schema: Schema) -> None:
    """Have the kernels compiled, or loaded from their cache, before anyone waits for rows."""
    FORMATS[schema.format].compile(schema)
