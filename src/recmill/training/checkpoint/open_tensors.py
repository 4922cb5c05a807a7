"""Files of tensors, opened with suspicion: a header that lies about its length, places, types or shapes is rejected."""

import math
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open
from torch import Tensor

from recmill.errors import RunError
from recmill.own_files import ListOf, MisfitError, OrNull, Shape, Table, one_of, parse_json, whole

MAX_HEADER_BYTES = 100 << 20  # what the package itself allows
_SIZES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1, "U8": 1, "BOOL": 1}
_TENSOR = Table(
    fields={
        "dtype": one_of(*_SIZES),
        "shape": ListOf(of=whole(0, 1 << 48)),
        "data_offsets": ListOf(of=whole(), length=2),
    }
)
_HEADER: Shape = Table(
    optional={"__metadata__": OrNull(of=Table(others=Shape("a text", lambda v: isinstance(v, str))))}, others=_TENSOR
)


def open_tensors(path: Path) -> Any:
    """A file of tensors, to be used with `with`; one that cannot be read is rejected by its name."""
    try:
        _check_header(path)
        return safe_open(path, framework="pt")
    except MisfitError as error:
        raise RunError(f"{path} is damaged: {error}; restore it from a copy") from None
    except (SafetensorError, OSError) as error:
        raise RunError(f"{path} is damaged: {error}; restore it from a copy") from None


def read_tensors(path: Path) -> dict[str, Tensor]:
    """All tensors of a file, by name."""
    with open_tensors(path) as file:
        return {name: file.get_tensor(name) for name in file.offset_keys()}


def fill_tensors(targets: Mapping[str, Tensor], path: Path) -> None:
    """Copy a file's tensors over those of the same names, shapes and types."""
    saved = read_tensors(path)
    if saved.keys() != targets.keys():
        differing = sorted(saved.keys() ^ targets.keys())
        raise RunError(f"{path} does not fit the settings: {', '.join(differing[:5])} on one side only")
    for name, target in targets.items():
        if saved[name].shape != target.shape:
            raise RunError(f"{path}: {name} has shape {tuple(saved[name].shape)}, expected {tuple(target.shape)}")
        if saved[name].dtype != target.dtype:
            raise RunError(f"{path}: {name} is of {saved[name].dtype}, expected {target.dtype}")
        target.copy_(saved[name])


def _check_header(path: Path) -> None:
    """Complain about a header that does not describe the file, tensor by tensor, without a gap."""
    if not path.is_file():  # a pipe would be waited for
        raise MisfitError("it is no file" if os.path.lexists(path) else "it is missing")
    size = path.stat().st_size
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if size < 8 or length > min(size - 8, MAX_HEADER_BYTES):
            raise MisfitError(f"its header of {length:,} bytes does not fit into {size:,}")
        content = file.read(length)
    try:
        header = parse_json(content.decode())
    except UnicodeDecodeError:
        raise MisfitError("its header is not UTF-8") from None
    _HEADER.check(header, "")
    tensors = {name: facts for name, facts in header.items() if name != "__metadata__"}
    _check_places(tensors, size - 8 - length)


def _check_places(tensors: Mapping[str, Any], num_bytes: int) -> None:
    at = 0
    for name, facts in sorted(tensors.items(), key=lambda item: item[1]["data_offsets"]):
        start, stop = facts["data_offsets"]
        wanted = math.prod(facts["shape"]) * _SIZES[facts["dtype"]]
        if start != at or stop - start != wanted:
            raise MisfitError(f"{name} lies from {start:,} to {stop:,}, expected {at:,} to {at + wanted:,}")
        at = stop
    if at != num_bytes:
        raise MisfitError(f"its tensors take {at:,} bytes, and there are {num_bytes:,}")
