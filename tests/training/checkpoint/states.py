"""Train states for tests: trained for a few steps, and compared byte by byte."""

from recmill.training.click.inputs import Inputs
from recmill.training.click.step import ClickState, take_step
from recmill.training.progress import Progress


def train_steps(parts: ClickState, num_steps: int, progress: Progress | None = None) -> Progress:
    """Take some steps, from where an earlier call stopped if its progress is given."""
    progress = progress or Progress()
    with Inputs(parts.config) as inputs, inputs.open_training(progress.position) as stream:
        for _ in range(num_steps):
            batch = next(stream)
            take_step(parts, batch, progress.step)
            progress = progress.after(batch, loss=0.5, step_s=0.5, blocked_s=0.25)
    return progress


def bytes_of(parts: ClickState) -> list[bytes]:
    """All weights, and all that the optimizer of the tables keeps."""
    layers = [parameter.detach().numpy().tobytes() for parameter in parts.model.parameters()]
    tables = [parts.tables.weights(spec.name).tobytes() for spec in parts.tables.specs]
    return [*layers, *tables, *(parts.tables.state(spec.name).tobytes() for spec in parts.tables.specs)]
