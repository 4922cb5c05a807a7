"""TorchX: an app of one role, an agent of torchrun on each host, for any of TorchX's schedulers."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from recmill.errors import ConfigError, MissingExtra
from recmill.launch.job import Job, refuse_negative_restarts
from recmill.launch.torchrun import TorchrunOptions, agent_arguments, agent_words
from recmill.world import DEFAULT_PORT

HERE = "local_cwd"  # the scheduler that runs apps in the current directory of this machine
# TorchX puts the name of the variable that holds the first host's address here, and the shell its value.
_FIRST_HOST = "$${${rank0_env}:=localhost}"


@dataclass(frozen=True)
class TorchxOptions:
    """Which scheduler, what it is told, and the image or directory the app is in."""

    scheduler: str = HERE
    image: str = ""
    settings: Mapping[str, str] = field(default_factory=dict)
    max_restarts: int = 0

    def __post_init__(self) -> None:
        refuse_negative_restarts(self.max_restarts)
        if self.scheduler == HERE and self.image:
            raise ConfigError(f"--image {self.image}: --scheduler {HERE} runs what is installed here; leave it out")
        if self.scheduler != HERE and not self.image:
            raise ConfigError(
                f"--scheduler {self.scheduler} needs --image: the image, or directory, with recmill in it"
            )


@dataclass(frozen=True)
class AppSubmission:
    """The app as TorchX describes it, in plain data."""

    app: dict[str, Any]
    scheduler: str
    settings: Mapping[str, str]

    def __str__(self) -> str:
        """What would be submitted, as JSON."""
        return json.dumps({"scheduler": self.scheduler, "cfg": dict(self.settings), "app": self.app}, indent=1)


def plan(job: Job, options: TorchxOptions) -> AppSubmission:
    """One role, of as many replicas as there are hosts."""
    program = _agent(job, options.max_restarts) if job.nodes == 1 else _meeting_agent(job, options.max_restarts)
    role = {
        "name": "recmill",
        "image": options.image,
        "entrypoint": program[0],
        "args": list(program[1:]),
        "env": {name: _literal(text) for name, text in agent_words(job).items()},
        "num_replicas": job.nodes,
        "port_map": {"c10d": DEFAULT_PORT} if job.nodes > 1 else {},
    }
    return AppSubmission({"name": job.name, "roles": [role]}, options.scheduler, options.settings)


def _agent(job: Job, max_restarts: int) -> tuple[str, ...]:
    words = agent_arguments(job, TorchrunOptions(max_restarts=max_restarts))
    return (job.python, *(_literal(word) for word in words))


def _meeting_agent(job: Job, max_restarts: int) -> tuple[str, ...]:
    """By a shell, because the address of the first host is known only where the agent is started."""
    words = (job.python, *agent_arguments(job, TorchrunOptions(_FIRST_HOST, max_restarts=max_restarts)))
    is_place = [word.startswith(_FIRST_HOST) for word in words]
    quoted = (f'"{w}"' if place else _literal(shlex.quote(w)) for w, place in zip(words, is_place, strict=True))
    return ("bash", "-c", " ".join(quoted))


def _literal(word: str) -> str:
    """Kept as it is where TorchX fills in its own words."""
    return word.replace("$", "$$")


def submit(submission: AppSubmission) -> int:
    """Hand the app over; on this machine, show what it says and wait for its end."""
    try:
        from torchx.runner import get_runner
        from torchx.specs import AppDef, AppState, Role
    except ModuleNotFoundError as missing:
        raise MissingExtra(
            f"--on torchx needs {missing.name}, which is not installed: .venv/bin/pip install torchx==0.7.0 "
            "(without constraints.txt: it holds urllib3 below 1.27, where recmill[ray] takes 2)"
        ) from missing
    app = AppDef(submission.app["name"], [Role(**role) for role in submission.app["roles"]])
    with get_runner() as runner:
        settings = ",".join(f"{name}={text}" for name, text in submission.settings.items())
        cfg = runner.scheduler_run_opts(submission.scheduler).cfg_from_str(settings)
        handle = runner.run(app, submission.scheduler, cfg)
        print(handle, flush=True)
        if not submission.scheduler.startswith("local"):
            return 0
        for line in runner.log_lines(handle, "recmill", should_tail=True):
            print(line, end="" if line.endswith("\n") else "\n", flush=True)
        status = runner.wait(handle, wait_interval=0.5)
        return 0 if status is not None and status.state == AppState.SUCCEEDED else 1
