"""The sorts of directories that recmill writes, as small examples, for the laws about damaged and hostile files."""

from collections.abc import Callable
from pathlib import Path

from tests.laws.damage import Kind, Use
from tests.laws.faults import Scenario
from tests.laws.forks import ForkServer

_TINY = tuple(
    word
    for setting in (
        *("threads=1", "data.reader_threads=1", "data.global_batch=64", "data.eval_batch=128", "data.num_lanes=2"),
        *("model.embedding_dim=4", "model.bottom=[8, 4]", "model.top=[8, 1]", "baselines.enabled=false"),
        *("cadence.log_every_steps=2", "cadence.save_every_steps=3"),
    )
    for word in ("--set", setting)
)
_TABLES = ("--set", "data.table_rows=" + str([50] * 26))
_TIERED = ("--set", "store.kind=cached_ssd", "--set", "store.cache_memory=80KiB")
_STOP = ("--set", "stop.max_steps=6")
_SEQUENCES = tuple(
    word
    for setting in (
        *("threads=1", "data.max_length=8", "data.global_batch=32", "model.embedding_dim=8", "stop.max_steps=6"),
        *("cadence.log_every_steps=2", "cadence.save_every_steps=3"),
    )
    for word in ("--set", setting)
)


class Workshop:
    """Makes examples, each when it is first asked for, in a directory."""

    def __init__(self, server: ForkServer, scratch: Path) -> None:
        self._server, self._scratch = server, scratch

    def _made(self, name: str, *words: str | Path) -> Path:
        """The directory of this name, written by a command with --out or --run behind it.

        Events are prepared in a fork: the threads of polars would not live on in one.
        """
        path = self._scratch / name
        if not path.exists():
            run = self._server.run if "--preset" in words else self._server.warm_up
            run(*words, path)
        return path

    def _warm_up(self, name: str, use: Use, example: Path) -> None:
        """Have the server use an example once, so that no fork has to load kernels or compile them."""
        out = self._scratch / name.replace(" ", "_").replace("--", "")
        if not out.exists():
            self._server.warm_up(*(word.format(dir=example, out=out) for word in use.words))

    def _log(self, seed: int) -> Path:
        words = ("synth", "criteo", "--rows", "1500", "--days", "3", "--seed", str(seed), "--out")
        return self._made(f"log_{seed}", *words)

    def _rows(self, seed: int, *options: str) -> Path:
        name = "_".join(["rows", str(seed), *options]).replace("--", "").replace(",", "")
        return self._made(name, "prepare", "--data", self._log(seed), *options, "--out")

    def _sequences(self, seed: int) -> Path:
        words = ("synth", "interactions", "--users", "80", "--items", "90", "--seed", str(seed), "--out")
        events = self._made(f"events_{seed}", *words) / "interactions.csv"
        return self._made(f"sequences_{seed}", "prepare", "--preset", "events", "--data", events, "--out")

    def _run(self, seed: int) -> Path:
        words = ("train", "demo", *_TINY, *_TABLES, *_STOP, "--set", "cadence.keep_ledger=true")
        return self._made(f"run_{seed}", *words, "--data", self._log(seed), "--run")

    def _tiered_run(self, seed: int) -> Path:
        words = ("train", "demo", *_TINY, *_TABLES, *_TIERED, *_STOP)
        return self._made(f"tiered_run_{seed}", *words, "--data", self._log(seed), "--run")

    def _sequence_run(self, seed: int) -> Path:
        return self._made(
            f"sequence_run_{seed}", "train", "sasrec", *_SEQUENCES, "--data", self._sequences(seed), "--run"
        )

    def _model(self, seed: int) -> Path:
        return self._made(f"model_{seed}", "checkpoint", "export", self._run(seed), "--out")

    def rows(self, *options: str) -> Kind:
        """Prepared rows, of which a run is trained, and which an audit looks at."""
        train = Use(("train", "demo", *_TINY, *_STOP, "--data", "{dir}", "--run", "{out}"), "{out}/model")
        example, name = self._rows(1, *options), " ".join(("rows", *options))
        self._warm_up(f"{name} run".replace(",", ""), train, example)
        return Kind(name, example, (train,), self._rows(2, *options))

    def vocabulary(self) -> Kind:
        """Prepared rows whose vocabulary encodes raw ones."""
        words = ("train", "demo", *_TINY, *_STOP, "--data", str(self._log(1)), "--vocabulary", "{dir}")
        use = Use((*words, "--run", "{out}"), "{out}/model")
        self._made("vocabulary_run", *(word.format(dir=self._rows(1)) for word in words), "--run")  # loads its kernels
        return Kind("vocabulary", self._rows(1), (use,), self._rows(2))

    def sequences(self) -> Kind:
        """Prepared sequences."""
        train = Use(("train", "sasrec", *_SEQUENCES, "--data", "{dir}", "--run", "{out}"), "{out}/model")
        self._warm_up("sequences run", train, self._sequences(1))
        return Kind("sequences", self._sequences(1), (train,), self._sequences(2))

    def run(self) -> Kind:
        """A run of clicks that goes on, is evaluated, and predicts."""
        new_rows = str(self._log(2) / "day_0")
        uses = (
            Use(("train", "--run", "{dir}", "--resume", "--set", "stop.max_steps=9"), "{dir}/model"),
            Use(("evaluate", "{dir}", "--split", "test", "--json"), ""),
            Use(("predict", "{dir}", "--data", new_rows, "--out", "{out}.csv"), "{out}.csv"),
        )
        self._warm_up("after evaluate of clicks", uses[1], self._run(1))
        return Kind("run", self._run(1), uses, self._run(2))

    def tiered_run(self) -> Kind:
        """A run whose tables lie in files of rows: it goes on, is evaluated and predicts."""
        uses = self.run().uses
        self._warm_up("after evaluate of a tiered run", uses[1], self._tiered_run(1))
        return Kind("tiered run", self._tiered_run(1), uses, self._tiered_run(2))

    def sequence_run(self) -> Kind:
        """A run of sequences that goes on, is evaluated, and recommends."""
        uses = (
            Use(("train", "--run", "{dir}", "--resume", "--set", "stop.max_steps=9"), "{dir}/model"),
            Use(("evaluate", "{dir}", "--json"), ""),
            Use(("recommend", "{dir}", "--user", "5", "-k", "5"), ""),
        )
        for use in uses[1:]:
            self._warm_up(f"after {use.words[0]}", use, self._sequence_run(1))
        return Kind("sequence run", self._sequence_run(1), uses, self._sequence_run(2))

    def writing_run(self) -> Scenario:
        """A run from its start."""
        words = ("train", "demo", *_TINY, *_TABLES, *_STOP, "--set", "cadence.keep_ledger=true")
        words = (*words, "--data", str(self._log(1)), "--run", "{dir}")
        self._run(1)  # loads its kernels
        return Scenario("run", None, words, (*words, "--start-or-resume"), "{dir}/model")

    def tiered_resume(self) -> Scenario:
        """A finished run with rows in files that goes on."""
        words = ("train", "--run", "{dir}", "--resume", "--set", "stop.max_steps=9")
        return Scenario("tiered resume", self._tiered_run(1), words, words, "{dir}/model")

    def writing_tiered_run(self) -> Scenario:
        """A run with rows in files from its start."""
        words = ("train", "demo", *_TINY, *_TABLES, *_TIERED, *_STOP, "--data", str(self._log(1)), "--run", "{dir}")
        self._tiered_run(1)  # loads its kernels
        return Scenario("tiered run", None, words, (*words, "--start-or-resume"), "{dir}/model")

    def compact(self) -> Scenario:
        """A saved state with rows in files, written anew in its place."""
        words = ("store", "compact", "{dir}")
        before = self._tiered_run(1) / "checkpoints" / "step_0000000006"
        return Scenario("compact", before, words, words, "{dir}")

    def resume(self) -> Scenario:
        """A finished run that goes on."""
        words = ("train", "--run", "{dir}", "--resume", "--set", "stop.max_steps=9")
        return Scenario("resume", self._run(1), words, words, "{dir}/model")

    def preparation(self, *options: str) -> Scenario:
        """Of rows."""
        words = ("prepare", "--data", str(self._log(1)), *options, "--jobs", "1", "--out", "{dir}")
        return Scenario(" ".join(["prepare", *options]), None, words, words, "{dir}")

    def event_preparation(self) -> Scenario:
        """Of sequences."""
        self._sequences(1)
        events = str(self._scratch / "events_1" / "interactions.csv")
        words = ("prepare", "--preset", "events", "--data", events, "--out", "{dir}")
        return Scenario("prepare events", None, words, words, "{dir}")

    def reshard(self) -> Scenario:
        """A state in other files."""
        words = ("checkpoint", "reshard", str(self._run(1)), "--pieces", "2", "--out", "{dir}")
        return Scenario("reshard", None, words, words, "{dir}")

    def model(self) -> Kind:
        """Exported weights that predict."""
        words = ("predict", "{dir}", "--data", str(self._log(2) / "day_0"), "--out", "{out}.csv")
        return Kind("model", self._model(1), (Use(words, "{out}.csv"),), self._model(2))


KINDS: dict[str, Callable[[Workshop], Kind]] = {
    "npy rows": Workshop.rows,
    "parquet rows": lambda shop: shop.rows("--format", "parquet"),
    "multi-hot rows": lambda shop: shop.rows("--multi-hot", ",".join(["2"] * 26)),
    "vocabulary": Workshop.vocabulary,
    "sequences": Workshop.sequences,
    "run": Workshop.run,
    "tiered run": Workshop.tiered_run,
    "sequence run": Workshop.sequence_run,
    "model": Workshop.model,
}
SCENARIOS: dict[str, Callable[[Workshop], Scenario]] = {
    "run": Workshop.writing_run,
    "resume": Workshop.resume,
    "tiered run": Workshop.writing_tiered_run,
    "tiered resume": Workshop.tiered_resume,
    "compact": Workshop.compact,
    "prepare": Workshop.preparation,
    "prepare parquet": lambda shop: shop.preparation("--format", "parquet"),
    "prepare events": Workshop.event_preparation,
    "reshard": Workshop.reshard,
}
