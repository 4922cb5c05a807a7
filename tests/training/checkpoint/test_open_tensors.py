import json
import os
import struct
from pathlib import Path
from typing import Any

import pytest
import torch

from recmill.errors import RunError
from recmill.training.checkpoint.open_tensors import fill_tensors, open_tensors, read_tensors
from recmill.training.checkpoint.tensor_file import write_tensors

TENSORS = {"a": torch.arange(6.0).reshape(2, 3), "empty": torch.empty(0, 3), "b": torch.tensor(3)}


def test_tensors_come_back(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, TENSORS)
    for name, tensor in read_tensors(path).items():
        assert torch.equal(tensor, TENSORS[name])
    targets = {name: torch.zeros_like(tensor) for name, tensor in TENSORS.items()}
    fill_tensors(targets, path)
    assert torch.equal(targets["a"], TENSORS["a"])


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"shape": [3, 3]}, "a lies from 0 to 24, expected 0 to 36"),
        ({"shape": "2"}, "a.shape = '2' is not a list"),
        ({"data_offsets": [4, 28]}, "a lies from 4 to 28, expected 0 to 24"),
        ({"data_offsets": [0]}, "a.data_offsets has 1 values, expected 2"),
        ({"dtype": "F7"}, "a.dtype = 'F7' is not one of"),
        ({"more": 1}, "a.more is not a field"),
    ],
)
def test_a_header_that_lies_is_named(changes: dict[str, Any], words: str, tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, TENSORS)
    content = path.read_bytes()
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    header["a"].update(changes)
    altered = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(altered)) + altered + content[8 + length :])
    with pytest.raises(RunError, match=rf"x\.safetensors is damaged: {words}"):
        open_tensors(path)


def test_files_that_are_cut_or_none_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    with pytest.raises(RunError, match="it is missing"):
        open_tensors(path)
    os.mkfifo(path)
    with pytest.raises(RunError, match="it is no file"):
        open_tensors(path)
    path.unlink()
    write_tensors(path, TENSORS)
    content = path.read_bytes()
    for altered, words in {
        content[:5]: "does not fit into 5",
        content[:30]: "does not fit into 30",
        content[:-1]: "its tensors take 32 bytes, and there are 31",
        content + b"x": "and there are 33",
        content.replace(b'"a"', b'"b"', 1): "'b' is there twice",
        content.replace(b'"a"', b'"\xff"', 1): "not UTF-8",
    }.items():
        path.write_bytes(altered)
        with pytest.raises(RunError, match=words):
            open_tensors(path)


def test_tensors_that_do_not_fit_are_named(tmp_path: Path) -> None:
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"a": torch.zeros(2, 3)})
    for target, words in {
        "c": ({"c": torch.zeros(2, 3)}, "a, c on one side only"),
        "shape": ({"a": torch.zeros(3, 2)}, r"a has shape \(2, 3\), expected \(3, 2\)"),
        "type": ({"a": torch.zeros(2, 3, dtype=torch.int64)}, r"a is of torch.float32, expected torch.int64"),
    }.values():
        with pytest.raises(RunError, match=words):
            fill_tensors(target, path)
