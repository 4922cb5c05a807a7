import pytest

from recmill.errors import ConfigError
from recmill.launch.job import Job, Submission, thread_words


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ({"nodes": 0}, "--nodes 0: a job has at least 1"),
        ({"procs": -1}, "--procs -1: a job has at least 1"),
        ({"name": "two words"}, "--name 'two words': use letters, digits"),
        ({"name": ""}, "--name '': use letters"),
    ],
)
def test_impossible_jobs_are_refused(words: dict[str, str | int], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        Job(**{"name": "job", "python": "python", "arguments": (), **words})  # type: ignore[arg-type]


def test_a_submission_reads_as_a_shell_would_have_it() -> None:
    assert str(Submission(("run", "a b", "$c"), {"WORD": "d e"})) == "WORD='d e' run 'a b' '$c'"
    assert str(Submission(("sbatch",), script="#!/bin/bash\n")) == "#!/bin/bash"


@pytest.mark.parametrize(
    ("procs", "num_cores", "environment", "threads"),
    [
        (2, 8, {}, ("4", "4")),
        (3, 8, {}, ("2", "2")),
        (4, 2, {}, ("1", "1")),
        (2, 8, {"OMP_NUM_THREADS": "3"}, ("3", "3")),
        (2, 8, {"OMP_NUM_THREADS": "3", "NUMBA_NUM_THREADS": "1"}, ("3", "1")),
    ],
)
def test_processes_share_the_cores(
    procs: int, num_cores: int, environment: dict[str, str], threads: tuple[str, str]
) -> None:
    assert tuple(thread_words(procs, num_cores, environment).values()) == threads
