"""What launchers would be told, kept as text to be read by eye."""

from pathlib import Path

from recmill.launch.job import Job

GOLDEN = Path(__file__).parents[1] / "golden" / "launch"
COMMAND = ("-m", "recmill", "train", "small", "--data", "/data/click logs", "--run", "runs/$day")


def assert_golden(name: str, text: object) -> None:
    assert f"{text}\n" == (GOLDEN / name).read_text()


def make_job(*, nodes: int = 1, procs: int = 2, **environment: str) -> Job:
    return Job("small", "/opt/recmill/bin/python", COMMAND, nodes, procs, environment)
