"""What a run on sequences will need, worked out from its settings and the size of the catalogue."""

from dataclasses import dataclass

from recmill.models.parts.losses import CHUNK_BYTES
from recmill.models.sequence.losses import DEFAULT_SAMPLED
from recmill.models.sequence.ranker import SEQUENCE_MODELS
from recmill.settings.sequences import SequenceConfig
from recmill.training.footprint import BASE_BYTES, FLOAT_BYTES, Need, lower_batch, refuse_too_large
from recmill.training.sequence.evaluate import BLOCK_BYTES
from recmill.training.sequence.sharding import plan_items, spread_kind

KEY_BYTES = 8
GUESSED_EVENTS = 10  # of an item; Goodreads has 9, Beauty 6


@dataclass(frozen=True)
class SequencePlan:
    """The memory of a run, by what takes it."""

    num_items: int
    item_bytes: int  # vectors, what their optimizer keeps, their mean, and a gradient of their size, if there is one
    layer_bytes: int  # weights, gradients, what the optimizer keeps, and their mean if there is one
    batch_bytes: int  # what a step of windows of the largest length keeps for its way back
    loss_bytes: int  # logits that exist at a time
    score_bytes: int  # of an evaluation
    whole_logits_bytes: int  # what logits of all items at all places would take, and never do
    transition_bytes: int = 0  # pairs of items that followed each other, if their counts are added to scores
    first_bytes: int = 0  # what first item vectors and those counts take while they are made, and only then

    @property
    def total_bytes(self) -> int:
        """What a process needs: a step or an evaluation, whichever is larger."""
        step_bytes = self.batch_bytes + self.loss_bytes
        lasting_bytes = self.item_bytes + self.layer_bytes + self.transition_bytes
        return BASE_BYTES + lasting_bytes + max(step_bytes, self.score_bytes, self.first_bytes)


def make_sequence_plan(
    config: SequenceConfig, num_items: int, num_procs: int = 1, num_trained: int | None = None
) -> SequencePlan:
    """Of each of so many processes; small layers are built to be counted, the item vectors are not.

    `num_trained` is the number of training events; None: a guess by the number of items.
    """
    model, data, dim = config.model, config.data, config.model.embedding_dim
    num_parameters = count_layers(config, num_items)
    is_averaged = config.average.from_step > 0
    width = 2 + config.dense.state_width + is_averaged  # weight, gradient, state, mean
    rows = num_items + 2
    kind, gathered_bytes = spread_kind(config, num_procs), 0
    if kind is not None:
        items = plan_items(config, num_items, kind, num_procs)
        item_bytes = max(items.table_bytes(rank) for rank in range(num_procs))
        gathered_bytes = rows * dim * FLOAT_BYTES  # an evaluation has a copy of the whole table
    elif config.tables is not None:
        item_bytes = rows * (dim + config.tables.state_width(dim) + dim * is_averaged) * FLOAT_BYTES
    else:
        # reading and scoring have a gradient each, which are added up
        item_bytes = rows * dim * (width + 1) * FLOAT_BYTES
    num_events = -(-data.global_batch // num_procs) * data.max_length
    hidden_dim = model.hidden_dim or 4 * dim
    # inputs, queries, keys and values twice (packed and padded), mixed values, two sums, two norms, two dropouts
    per_event = dim + model.num_blocks * (13 * dim + 3 * hidden_dim + 3 * model.num_heads * data.max_length)
    candidates = num_items if config.loss.kind == "full" else config.loss.num_sampled or DEFAULT_SAMPLED
    logits = num_events * candidates * FLOAT_BYTES
    # those that are drawn: their numbers, vectors and gradients
    drawn_bytes = candidates * (2 * KEY_BYTES + 2 * dim * FLOAT_BYTES) if config.loss.kind == "sampled" else 0
    scores = num_items * data.eval_batch * FLOAT_BYTES
    return SequencePlan(
        num_items,
        item_bytes,
        num_parameters * width * FLOAT_BYTES,
        2 * num_events * per_event * FLOAT_BYTES,
        2 * min(logits, max(CHUNK_BYTES, candidates * FLOAT_BYTES)) + drawn_bytes,
        min(scores, max(BLOCK_BYTES, num_items * FLOAT_BYTES)) + gathered_bytes,
        num_events * num_items * FLOAT_BYTES,
        *plan_counts(config, num_items, num_items * GUESSED_EVENTS if num_trained is None else num_trained),
    )


def count_layers(config: SequenceConfig, num_items: int) -> int:
    """The weights of all layers, by those of one block and of two, one wide and two: they grow evenly with both."""
    model, data = config.model, config.data

    def count(num_blocks: int, hidden_dim: int) -> int:
        small = model.with_({"num_blocks": num_blocks, "hidden_dim": hidden_dim})
        layers = SEQUENCE_MODELS[model.kind](small, num_items, data.max_length, seed=0)
        return sum(parameter.numel() for parameter in layers.parameters())

    least = count(1, 1)
    per_width = count(1, 2) - least
    hidden_dim = model.hidden_dim or 4 * model.embedding_dim
    per_block = count(2, 1) - least + (hidden_dim - 1) * per_width
    return least + (hidden_dim - 1) * per_width + (model.num_blocks - 1) * per_block


def plan_counts(config: SequenceConfig, num_items: int, num_trained: int) -> tuple[int, int]:
    """Of what is counted from so many training events: the bytes that stay, and those of making it."""
    model, staying, making = config.model, 0, 0
    if model.transition_weight:
        staying = num_trained * 2 * FLOAT_BYTES + num_items * KEY_BYTES  # no pair twice, at most
        making = num_trained * 5 * KEY_BYTES  # the pairs, sorted, their borders and both halves
    if model.item_init == "co_occurrence":
        making = max(making, 4 * num_items * model.embedding_dim * FLOAT_BYTES)  # two, their norms, and a copy
    return staying, making


def refuse_large_run(
    config: SequenceConfig, num_items: int, num_trained: int, memory_bytes: int, num_procs: int = 1
) -> None:
    """Complain about a run of which one of so many processes needs more than all memory that it can have."""
    plan, data = make_sequence_plan(config, num_items, num_procs, num_trained), config.data
    lasting = plan.item_bytes + plan.transition_bytes
    needs = [
        Need(f"vectors of {num_items} items", lasting, lambda _room: "lower model.embedding_dim"),
        Need("layers", plan.layer_bytes, lambda _room: "lower model.embedding_dim, hidden_dim or num_blocks"),
    ]
    if max(plan.score_bytes, plan.first_bytes) <= plan.batch_bytes + plan.loss_bytes:
        lower = lower_batch("data.global_batch", data.global_batch, plan.batch_bytes)
        needs.append(Need("a training step", plan.batch_bytes, lower))
        fewer = "set loss.kind=sampled" if config.loss.kind == "full" else "lower loss.num_sampled"
        needs.append(Need("logits", plan.loss_bytes, lambda _room: fewer))
    elif plan.first_bytes <= plan.score_bytes:
        lower = lower_batch("data.eval_batch", data.eval_batch, plan.score_bytes)
        needs.append(Need("an evaluation", plan.score_bytes, lower))
    else:
        needs.append(Need("counts of pairs", plan.first_bytes, lambda _room: "set model.transition_weight=0"))
    refuse_too_large(needs, memory_bytes)
