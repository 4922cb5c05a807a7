"""Event files written and prepared for a test, and what came of it as plain Python."""

import random
from pathlib import Path
from typing import Any

from recmill.data.events.prepare import EventJob, PreparedSequences, open_prepared_sequences, prepare_events
from recmill.settings.events import EVENT_PRESETS, EventRules
from tests.data.events_oracle import Event, Expected

CSV = EVENT_PRESETS["events"].schemas
HEADER = "user,item,time\n"


def prepared(path: Path, rules: EventRules, out: Path, **changes: Any) -> PreparedSequences:
    job = {"schemas": CSV, "rules": rules, "preset": "events", **changes}
    prepare_events(EventJob(path, out, **job), overwrite=True)
    return open_prepared_sequences(out, verify="always")


def as_expected(found: PreparedSequences) -> Expected:
    sequences, catalogue = found.sequences, found.catalogue
    users = range(sequences.num_users)
    return Expected(
        catalogue.user_names(),
        catalogue.item_names(range(1, sequences.num_items + 1)),
        [sequences.events[sequences.offsets[u] : sequences.offsets[u + 1]].tolist() for u in users],
        sequences.train_lengths.tolist(),
        sequences.validation_at.tolist(),
        sequences.test_at.tolist(),
    )


def write_csv(path: Path, rows: list[Event]) -> Path:
    path.write_text(HEADER + "".join(f"{user},{item},{time}\n" for user, item, time in rows))
    return path


def random_rows(count: int, seed: int = 0) -> list[Event]:
    rng = random.Random(seed)
    return [(rng.randrange(40), rng.randrange(60), rng.randrange(1000)) for _ in range(count)]
