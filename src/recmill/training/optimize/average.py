"""The mean of a run's weights over its later steps, which it is evaluated with and which it leaves behind."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import Tensor, nn

from recmill.embeddings.piece import HasPieces
from recmill.settings.optimizers import Average


class WeightMean:
    """The mean of all that a model and its tables score with: weights, and what batch norm has measured."""

    def __init__(self, settings: Average, model: nn.Module, tables: HasPieces | None) -> None:
        self._settings = settings
        layers = {name: tensor for name, tensor in model.state_dict().items() if tensor.is_floating_point()}
        pieces = {piece.table: piece.values for piece in (tables.pieces() if tables else ()) if piece.what == "weights"}
        self.count = 0  # of the weights it is the mean of
        self.layers = {name: tensor.clone() for name, tensor in layers.items()}
        self.tables = {name: values.clone() for name, values in pieces.items()}
        self._pairs = [(tensor, self.layers[name]) for name, tensor in layers.items()]
        self._pairs += [(values, self.tables[name]) for name, values in pieces.items()]

    def take_in(self, step: int) -> None:
        """The weights as they are now, after so many finished steps, if they belong to the mean."""
        if self._settings.due(step):
            self.count += 1
            for tensor, mean in self._pairs:
                mean.lerp_(tensor, self._settings.weight_of(self.count))

    @contextmanager
    def in_place(self) -> Iterator[None]:
        """While it lasts, the model and the tables hold the mean, if there is one."""
        self._exchange()
        try:
            yield
        finally:
            self._exchange()

    def restore(self, count: int) -> None:
        """The mean of so many is what the model and the tables hold now."""
        self.count = count
        for tensor, mean in self._pairs:
            mean.copy_(tensor)

    def forget(self) -> None:
        """What the model and the tables hold now is to be evaluated as it is."""
        self.count = 0

    def training_weights(self) -> dict[str, Tensor]:
        """What training goes on from, by names of their own, not copies."""
        names = [*(f"layers:{name}" for name in self.layers), *(f"tables:{name}" for name in self.tables)]
        return dict(zip(names, (tensor for tensor, _ in self._pairs), strict=True))

    def _exchange(self) -> None:
        if self.count:
            for tensor, mean in self._pairs:
                held = tensor.clone()
                tensor.copy_(mean)
                mean.copy_(held)
