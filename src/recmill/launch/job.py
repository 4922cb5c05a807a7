"""What is to be started, wherever that will be: a command line and the number of its processes."""

import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field

from recmill.errors import ConfigError


@dataclass(frozen=True)
class Job:
    """`python ARGUMENTS` in `procs` processes on each of `nodes` hosts."""

    name: str
    python: str
    arguments: tuple[str, ...]
    nodes: int = 1
    procs: int = 1
    environment: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for option, value in (("--nodes", self.nodes), ("--procs", self.procs)):
            if value < 1:
                raise ConfigError(f"{option} {value}: a job has at least 1")
        # it becomes a file name, a line of a script and the name of a rendezvous
        if not self.name or not all(letter.isalnum() or letter in "-_." for letter in self.name):
            raise ConfigError(f"--name {self.name!r}: use letters, digits, '-', '_' and '.'")

    @property
    def argv(self) -> tuple[str, ...]:
        """What each process runs."""
        return (self.python, *self.arguments)

    @property
    def num_procs(self) -> int:
        """On all hosts together."""
        return self.nodes * self.procs


@dataclass(frozen=True)
class Submission:
    """A program to start, with more words in its environment and a text on its standard input."""

    argv: tuple[str, ...]
    environment: Mapping[str, str] = field(default_factory=dict)
    script: str = ""

    def __str__(self) -> str:
        """What would be submitted: the script if there is one, or a line that a shell understands."""
        if self.script:
            return self.script.rstrip("\n")
        words = [f"{name}={shlex.quote(text)}" for name, text in self.environment.items()]
        return " ".join([*words, shlex.join(self.argv)])


def refuse_negative_restarts(max_restarts: int) -> None:
    """Complain about less than none."""
    if max_restarts < 0:
        raise ConfigError(f"--max-restarts {max_restarts}: 0 restarts nothing, and less than that cannot be")


def refuse_no_port(port: int) -> None:
    """Complain about a number that no port has."""
    if not 0 < port < 65536:
        raise ConfigError(f"--port {port}: ports are from 1 to 65535")


def thread_words(procs: int, num_cores: int, environment: Mapping[str, str]) -> dict[str, str]:
    """An equal share of the cores for each process; a number that is there already is left alone."""
    share = environment.get("OMP_NUM_THREADS", str(max(1, num_cores // procs)))
    return {name: environment.get(name, share) for name in ("OMP_NUM_THREADS", "NUMBA_NUM_THREADS")}
