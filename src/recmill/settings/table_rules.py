"""One record for each optimizer of the tables: its numbers, its state, its kernel, and what TorchRec calls it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

Width = Literal["dim", "row"]  # a number for every weight of a row, or one for the row


@dataclass(frozen=True)
class TableRule:
    """All that is known of a rule beside its formula, which stands in its kernel."""

    kind: str
    numbers: Mapping[str, float]  # beside the learning rate, with their defaults
    state: Mapping[str, Width]  # what is kept for a row, in this order
    kernel: str  # "module:function", which builds the compiled rule for rows of one dimension
    torchrec: str | None = None  # "module:class" of the optimizer that TorchRec fuses; None: it has none
    fbgemm: str = ""  # what FBGEMM then calls it
    on_torchrec_cpu: bool = True  # False: on CUDA alone

    def state_width(self, numbers: Mapping[str, float], dim: int) -> int:
        """How many numbers are kept for each row."""
        kept = {name: width for name, width in self.state.items() if name != "momentum" or numbers["momentum"] > 0}
        return sum(dim if width == "dim" else 1 for width in kept.values())

    def accumulator_width(self, dim: int) -> int:
        """How many of those, the first ones, start at `initial_accumulator`."""
        width = self.state.get("accumulator")
        return 0 if width is None else dim if width == "dim" else 1

    def is_fused_on(self, device: str) -> bool:
        """Whether TorchRec's tables have it on a device."""
        return self.torchrec is not None and (device != "cpu" or self.on_torchrec_cpu)

    @property
    def needs_whole_rows(self) -> bool:
        """Whether it keeps one number for a whole row, and would be another rule on parts of rows."""
        return "row" in self.state.values()


_RULES = "recmill.embeddings.rules"
_ADAGRAD = {"eps": 1e-8, "initial_accumulator": 0.0, "weight_decay": 0.0}
_ADAM = {"beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0.0}

TABLE_RULES: dict[str, TableRule] = {
    rule.kind: rule
    for rule in (
        TableRule(
            "sgd",
            {"momentum": 0.0, "weight_decay": 0.0},
            {"momentum": "dim"},
            f"{_RULES}:sgd",
            "torch.optim:SGD",
            "exact_sgd",
        ),
        TableRule(
            "adagrad",
            _ADAGRAD,
            {"accumulator": "dim"},
            f"{_RULES}:adagrad",
            "torch.optim:Adagrad",
            "exact_adagrad",
        ),
        TableRule(
            "rowwise_adagrad",
            _ADAGRAD,
            {"accumulator": "row"},
            f"{_RULES}:rowwise_adagrad",
            "torchrec.optim.rowwise_adagrad:RowWiseAdagrad",
            "exact_rowwise_adagrad",
        ),
        TableRule(
            "adam",
            _ADAM,
            {"first": "dim", "second": "dim"},
            f"{_RULES}:adam",
            "torch.optim:Adam",
            "adam",
            on_torchrec_cpu=False,
        ),
        TableRule("rowwise_adam", _ADAM, {"first": "dim", "second": "row"}, f"{_RULES}:rowwise_adam"),
        TableRule(
            "ftrl",
            {"l1": 0.0, "l2": 0.0, "lr_power": -0.5, "initial_accumulator": 0.0},
            {"accumulator": "dim", "z": "dim"},
            f"{_RULES}:ftrl",
        ),
    )
}
