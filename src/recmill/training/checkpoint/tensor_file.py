"""Tensors in a safetensors file, written straight from memory.

The package's own writer copies all tensors before it writes the first and keeps the interpreter to itself meanwhile;
here a checkpoint goes to the disk piece by piece, past the page cache, while training goes on.
"""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from recmill.training.checkpoint.direct_file import DirectFile

_DTYPES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.float16: "F16",
    torch.bfloat16: "BF16",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}

Layout = tuple[torch.dtype, tuple[int, ...]]


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write a file and have it on the disk; its checksum."""
    layout = {name: (tensor.dtype, tuple(tensor.shape)) for name, tensor in tensors.items()}
    return write_portions(path, layout, tensors.values())


def write_portions(path: Path, layout: Mapping[str, Layout], portions: Iterable[Tensor]) -> str:
    """The same from tensors that come in portions, all numbers of one before the first of the next."""
    with DirectFile(path) as file:
        file.write(np.frombuffer(_header(layout), np.uint8))
        for portion in portions:
            file.write(portion.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
    return file.digest


def _header(layout: Mapping[str, Layout]) -> bytes:
    """The names, shapes and places of all tensors, its own length before it."""
    places, offset = {}, 0
    for name, (dtype, shape) in layout.items():
        end = offset + math.prod(shape) * dtype.itemsize
        places[name] = {"dtype": _DTYPES[dtype], "shape": list(shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(places, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # what follows is aligned
    return len(text).to_bytes(8, "little") + text
