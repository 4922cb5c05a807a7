"""The precision of the layers' arithmetic, and the scale that keeps small gradients of 16 bits from vanishing."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
from torch import nn

from recmill.embeddings.engine import RowEngine
from recmill.errors import ConfigError, NonFiniteLoss
from recmill.settings.optimizers import Precision

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FIRST_SCALES = {"dynamic": 65536.0, "static": 1024.0}  # torch's GradScaler, OneFlow's StaticGradScaler
_GROWTH_INTERVAL = 2000


def autocast(precision: Precision, device: str) -> AbstractContextManager[Any]:
    """The context in which layers on a device compute."""
    if precision.kind == "fp32":
        return nullcontext()
    return torch.autocast(torch.device(device).type, dtype=_DTYPES[precision.kind])


def refuse_precision(precision: Precision, device: str) -> None:
    """Complain about what the device cannot do."""
    if precision.tf32 and device == "cpu":
        raise ConfigError("precision.tf32 = true needs a CUDA device and this run is on a CPU; leave it out")


def use_tf32(precision: Precision) -> None:
    """Let CUDA multiply float32 matrices in 19 bits, or not, as the settings say."""
    torch.backends.cuda.matmul.allow_tf32 = precision.tf32
    torch.backends.cudnn.allow_tf32 = precision.tf32


class LossScale:
    """The factor of the loss, how many steps in a row went well with it, and how many did not count."""

    def __init__(self, precision: Precision) -> None:
        scaling = precision.scaling or "dynamic"
        self.scale = precision.scale or _FIRST_SCALES[scaling]
        self.num_good = 0
        self.num_skipped = 0
        self._growth_interval = (precision.growth_interval or _GROWTH_INTERVAL) if scaling == "dynamic" else None

    def unscale(self, model: nn.Module, tables: RowEngine) -> bool:
        """Divide all gradients, those the tables hold included, by the scale; whether all are finite."""
        layers = [parameter.grad for parameter in model.parameters() if parameter.grad is not None]
        inverse = 1.0 / self.scale
        is_finite = True
        for gradient in layers:
            gradient.mul_(inverse)
            is_finite = is_finite and bool(gradient.isfinite().all())
        for held in tables.held_gradients():
            held *= np.float32(inverse)
            is_finite = is_finite and bool(np.isfinite(held).all())
        return is_finite

    def note(self, *, is_finite: bool) -> None:
        """One more step; the scale of the next."""
        self.num_good = self.num_good + 1 if is_finite else 0
        self.num_skipped += not is_finite
        if self._growth_interval is None:
            return
        if not is_finite:
            self.scale /= 2
            if self.scale < 1:
                raise NonFiniteLoss("the gradients are not finite even if the loss is not scaled up")
        elif self.num_good == self._growth_interval:
            self.scale *= 2
            self.num_good = 0

    def to_json(self) -> dict[str, Any]:
        """Plain data for a checkpoint."""
        return {"scale": self.scale, "num_good": self.num_good, "num_skipped": self.num_skipped}

    def restore(self, data: dict[str, Any]) -> None:
        """Take over what `to_json` wrote."""
        self.scale, self.num_good, self.num_skipped = data["scale"], data["num_good"], data["num_skipped"]
