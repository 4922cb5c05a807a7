"""Where a run computes, as runs and `recmill doctor` decide it alike."""

import warnings
from pathlib import Path

import pytest
import torch

from recmill.cli import doctor
from recmill.errors import ConfigError, MissingExtra
from recmill.settings.clicks import TrainConfig
from recmill.settings.optimizers import Precision
from recmill.settings.run import Device
from recmill.training import device as devices
from recmill.training.click.job import ClickJob
from recmill.training.device import choose_gpus
from recmill.training.job import read_own_world, run_job
from recmill.training.optimize.precision import autocast, refuse_precision, use_tf32
from recmill.world import World


@pytest.mark.parametrize(
    ("device", "num_gpus", "has_torchrec", "expected"),
    [
        ("auto", 0, True, 0),
        ("auto", 2, True, 2),
        ("auto", 2, False, 0),
        ("cpu", 2, True, 0),
        ("cuda", 1, True, 1),
    ],
)
def test_gpus_are_used_where_they_are_of_use(device: Device, num_gpus: int, has_torchrec: bool, expected: int) -> None:
    assert choose_gpus(device, num_gpus, is_torchrec_there=has_torchrec) == expected


def test_what_cannot_be_is_named_with_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"device = cuda, and torch sees no CUDA device here; set device=cpu"):
        choose_gpus("cuda", 0, is_torchrec_there=True)
    with pytest.raises(MissingExtra, match=r"device = cuda needs TorchRec.*make install-full"):
        choose_gpus("cuda", 1, is_torchrec_there=False)


def test_a_gpu_without_torchrec_is_left_alone_by_runs_and_by_doctor(
    tiny_config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda _index: "Some GPU")
    monkeypatch.setattr(devices, "has_torchrec", lambda: False)
    monkeypatch.setattr("recmill.training.job.has_torchrec", lambda: False)
    assert read_own_world(tiny_config).device == "cpu"
    assert doctor.find_device().startswith(
        "cpu (Some GPU is there; to train on it, install TorchRec: make install-full"
    )
    with pytest.raises(MissingExtra, match="device = cuda needs TorchRec"):
        read_own_world(tiny_config.with_({"device": "cuda"}))
    monkeypatch.setattr(devices, "has_torchrec", lambda: True)
    monkeypatch.setattr("recmill.training.job.has_torchrec", lambda: True)
    assert read_own_world(tiny_config).device == "cuda:0"
    assert read_own_world(tiny_config.with_({"device": "cpu"})).device == "cpu"
    assert doctor.find_device() == "cuda (1 x Some GPU)"


def test_several_processes_without_torchrec_say_how_to_get_it(
    tiny_config: TrainConfig, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(devices, "has_torchrec", lambda: False)
    with pytest.raises(
        MissingExtra, match=r"a run of 2 processes needs TorchRec, which is not installed: make install"
    ):
        ClickJob(tiny_config).uses_torchrec(World(size=2, local_size=2))
    with pytest.raises(MissingExtra, match=r"sharding.engine = torchrec needs TorchRec"):
        run_job(tiny_config.with_({"sharding.engine": "torchrec"}), tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_precision_is_of_the_device_that_computes() -> None:
    refuse_precision(Precision(tf32=True), "cuda:0")
    with pytest.raises(ConfigError, match=r"precision.tf32 = true needs a CUDA device"):
        refuse_precision(Precision(tf32=True), "cpu")
    with autocast(Precision(kind="bf16"), "cpu"):
        assert torch.is_autocast_enabled("cpu")
        assert torch.get_autocast_dtype("cpu") == torch.bfloat16
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch says that there is no such device here
        on_cuda = autocast(Precision(kind="bf16"), "cuda:1")
    assert isinstance(on_cuda, torch.autocast)
    assert on_cuda.device == "cuda"
    try:
        for wanted in (True, False):
            use_tf32(Precision(tf32=wanted))
            assert torch.backends.cuda.matmul.allow_tf32 is wanted
    finally:
        use_tf32(Precision())
