"""torchrun: an agent on each host starts the processes, and starts all of them again when one has died."""

import logging
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from recmill.errors import ConfigError
from recmill.launch.job import Job, Submission, refuse_negative_restarts, refuse_no_port
from recmill.world import DEFAULT_PORT

MODULE = "torch.distributed.run"
# What a process may take to save its state when it is told to stop, before it is killed.
SHUTDOWN_S = 120


@dataclass(frozen=True)
class TorchrunOptions:
    """Where the agents of several hosts meet, and how often processes that died are started again."""

    address: str | None = None
    port: int | None = None
    max_restarts: int = 0

    def __post_init__(self) -> None:
        refuse_negative_restarts(self.max_restarts)
        refuse_no_port(self.port or DEFAULT_PORT)


def plan(job: Job, options: TorchrunOptions) -> Submission:
    """The agent of one host; of several hosts each runs the same line."""
    return Submission((job.python, *agent_arguments(job, options)), agent_words(job))


def agent_words(job: Job) -> dict[str, str]:
    """The environment of the agent."""
    # else the agents of several hosts keep a store in which processes that are started again find dead ones
    fresh_store = {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"} if job.nodes > 1 else {}
    return {**fresh_store, **job.environment}


def agent_arguments(job: Job, options: TorchrunOptions) -> tuple[str, ...]:
    """What Python is told, to be the agent."""
    words = ["-m", MODULE, *_meeting(job, options), "--nproc-per-node", str(job.procs)]
    words += ["--max-restarts", str(options.max_restarts)]
    words += ["--signals-to-handle", "SIGTERM,SIGINT,SIGHUP,SIGQUIT,SIGUSR1", "--shutdown-timeout", str(SHUTDOWN_S)]
    is_module = job.arguments[0] == "-m"
    # without the dashes torchrun takes --run of `recmill train` for a part of its own --run-path
    return (*words, *(["-m"] if is_module else []), "--", *job.arguments[is_module:])


def _meeting(job: Job, options: TorchrunOptions) -> list[str]:
    if job.nodes == 1:
        for option, value in (("--address", options.address), ("--port", options.port)):
            if value is not None:
                raise ConfigError(f"{option} {value} is for several hosts; give --nodes too, or leave it out")
        return ["--standalone"]
    if options.address is None:
        raise ConfigError(
            f"--nodes {job.nodes} with torchrun: name one of the hosts with --address HOST, "
            "then run the same command on each of them"
        )
    meeting = ["--nnodes", str(job.nodes), "--rdzv-backend", "c10d", "--rdzv-id", job.name]
    return [*meeting, "--rdzv-endpoint", f"{options.address}:{options.port or DEFAULT_PORT}"]


def submit(submission: Submission) -> int:
    """Be the agent, in this process, until all of its processes have ended; the status of the first that failed.

    As a program torchrun says 1 of every failure, and a page of text.
    """
    os.environ.update(submission.environment)
    from torch.distributed import run
    from torch.distributed.elastic.multiprocessing.api import SignalException
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError

    for name in ("multiprocessing.api", "agent.server.api"):  # which process has died is told, and not who was stopped
        logging.getLogger(f"torch.distributed.elastic.{name}").setLevel(logging.ERROR)
    words = submission.argv[submission.argv.index(MODULE) + 1 :]
    understand: Callable[[Sequence[str]], Any] = run.parse_args
    be_agent: Callable[[Any], None] = run.run
    try:
        be_agent(understand(words))
    except ChildFailedError as error:
        _, failure = error.get_first_failure()
        return exit_status(failure.exitcode)
    except SignalException as error:
        return exit_status(-error.sigval)
    return 0


def exit_status(code: int) -> int:
    """As a shell tells it: a process that died by signal 9 has status 137."""
    return 128 - code if code < 0 else code
