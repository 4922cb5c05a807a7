"""The precision of the layers' arithmetic, and the scale that keeps small gradients of 16 bits from vanishing."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any, Literal

import numpy as np
import torch
from pydantic import Field
from torch import nn

from recmill.embeddings.local import LocalTables
from recmill.errors import ConfigError, NonFiniteLoss
from recmill.settings.tree import Settings

_DTYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
_FIRST_SCALES = {"dynamic": 65536.0, "static": 1024.0}  # torch's GradScaler, OneFlow's StaticGradScaler
_GROWTH_INTERVAL = 2000


class Precision(Settings):
    """In what precision a training step computes; weights, tables, optimizers and evaluations stay float32.

    fp16 multiplies the loss by a scale and its gradients by the inverse. A step whose gradients are not finite changes
    neither layers nor tables. A dynamic scale is halved by it, and doubled by growth_interval good steps in a row.
    """

    kind: Literal["fp32", "bf16", "fp16"] = "fp32"
    tf32: bool = False  # float32 products in 19 bits, on CUDA
    scaling: Literal["dynamic", "static"] | None = None  # of fp16 alone; without a value: dynamic
    scale: float | None = Field(default=None, gt=0)
    growth_interval: int | None = Field(default=None, ge=1)

    def model_post_init(self, _context: object) -> None:
        """Refuse what would do nothing."""
        for name in ("scaling", "scale", "growth_interval"):
            value = getattr(self, name)
            if value is not None and self.kind != "fp16":
                raise ConfigError(
                    f"precision.{name} = {value} does nothing for precision.kind = {self.kind}: only fp16 needs its "
                    "loss scaled; leave it out"
                )
        if self.scaling == "static" and self.growth_interval is not None:
            raise ConfigError(
                f"precision.growth_interval = {self.growth_interval} does nothing for precision.scaling = static; "
                "leave it out or set precision.scaling=dynamic"
            )

    def autocast(self) -> AbstractContextManager[Any]:
        """The context in which layers compute."""
        return nullcontext() if self.kind == "fp32" else torch.autocast("cpu", dtype=_DTYPES[self.kind])


def refuse_on_cpu(precision: Precision) -> None:
    """Complain about what only a CUDA device can do."""
    if precision.kind == "fp16":
        raise ConfigError(
            "precision.kind = fp16 needs a CUDA device and this run is on a CPU; set precision.kind=bf16 or fp32"
        )
    if precision.tf32:
        raise ConfigError("precision.tf32 = true needs a CUDA device and this run is on a CPU; leave it out")


class LossScale:
    """The factor of the loss, how many steps in a row went well with it, and how many did not count."""

    def __init__(self, precision: Precision) -> None:
        scaling = precision.scaling or "dynamic"
        self.scale = precision.scale or _FIRST_SCALES[scaling]
        self.num_good = 0
        self.num_skipped = 0
        self._growth_interval = (precision.growth_interval or _GROWTH_INTERVAL) if scaling == "dynamic" else None

    def unscale(self, model: nn.Module, tables: LocalTables) -> bool:
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
