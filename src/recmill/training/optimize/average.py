"""The mean of a run's weights over its later steps, by which it is judged and which it leaves behind."""

from collections.abc import Iterator
from contextlib import contextmanager

from pydantic import Field
from torch import Tensor, nn

from recmill.embeddings.piece import HasPieces
from recmill.errors import ConfigError
from recmill.settings.tree import Settings

NO_AVERAGE = "average.from_step=0, average.every_steps=1 and average.recent_frac=1"  # as settings, for complaints


class Average(Settings):
    """The mean of the weights after step `from_step`, and after each `every_steps`-th step behind it.

    With `recent_frac` the newest weights count most: of n that were taken in, about the newest n · recent_frac, so that
    what was learnt early is forgotten however long a run is.

    Training goes on from the weights themselves; evaluations, best weights and what a run leaves behind are the mean.
    It takes as much memory as the weights of layers and tables once more, and a pass over them each time it is due.
    """

    from_step: int = Field(default=0, ge=0)  # 0: no mean
    every_steps: int = Field(default=1, ge=1)
    recent_frac: float = Field(default=1.0, gt=0, le=1)  # 1: all count alike

    def model_post_init(self, _context: object) -> None:
        """Refuse what would do nothing."""
        for name in ("every_steps", "recent_frac"):
            value = getattr(self, name)
            if value != 1 and not self.from_step:
                raise ConfigError(
                    f"average.{name} = {value} does nothing without average.from_step; set both, or {NO_AVERAGE}"
                )

    def due(self, step: int) -> bool:
        """Whether the weights after so many finished steps belong to the mean."""
        return 0 < self.from_step <= step and (step - self.from_step) % self.every_steps == 0

    def weight_of(self, number: int) -> float:
        """By how much the mean moves towards the weights that are taken in as its `number`-th, counted from 1."""
        return 1 / max(1.0, number * self.recent_frac)


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
        """What the model and the tables hold now is to be judged as it is."""
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
