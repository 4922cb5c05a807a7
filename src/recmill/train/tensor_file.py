"""Tensors in a safetensors file, written straight from memory.

The package's own writer copies all tensors before it writes the first and keeps the interpreter to itself meanwhile;
here a checkpoint goes to the disk piece by piece, and its checksum is taken on the way, while training goes on.
"""

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

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
_PIECE_BYTES = 8 << 20


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> str:
    """Write a file and have it on the disk; its SHA-256."""
    digest = hashlib.sha256()
    with path.open("wb") as file:
        header = _header(tensors)
        file.write(header)
        digest.update(header)
        for tensor in tensors.values():
            content = tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data
            for start in range(0, len(content), _PIECE_BYTES):
                piece = content[start : start + _PIECE_BYTES]
                file.write(piece)
                digest.update(piece)
        file.flush()
        os.fsync(file.fileno())
    return digest.hexdigest()


def _header(tensors: Mapping[str, Tensor]) -> bytes:
    """The names, shapes and places of all tensors, its own length before it."""
    places, offset = {}, 0
    for name, tensor in tensors.items():
        end = offset + tensor.numel() * tensor.element_size()
        places[name] = {"dtype": _DTYPES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [offset, end]}
        offset = end
    text = json.dumps(places, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)  # what follows is aligned
    return len(text).to_bytes(8, "little") + text
