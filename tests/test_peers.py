import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from recmill.peers import describe_difference, is_broken, within
from tests.laws.ranks import COLLECTIVES, Rank, RankEnded, RankServer, free_port

LATER_S = 15.0  # beyond a time-out, on a machine whose cores others use too


@pytest.fixture(scope="module")
def server() -> Iterator[RankServer]:
    with RankServer() as running:
        yield running


def _assert_told(ended: RankEnded, *words: str, status: int = 1, within_s: float = LATER_S) -> None:
    assert ended.status == status, ended.said
    lines = [line for line in ended.said.splitlines() if line]
    assert len(lines) == 1, ended.said
    for word in ("recmill: ", *words):
        assert word in lines[0]
    assert ended.seconds < within_s


def test_whoever_dies_in_a_collective_is_named(server: RankServer) -> None:
    runs = [[Rank(collective=name, timeout_s=35), Rank("die", collective=name)] for name in COLLECTIVES]
    for alive, dead in server.run_all(runs):
        assert dead.status == -9
        _assert_told(alive, "rank 0 of 2 (at work) has lost rank 1 (process ", "its connection is closed", "--resume")


@pytest.mark.parametrize("lost", [0, 2])
def test_of_three_the_one_that_died_is_named(server: RankServer, lost: int) -> None:
    """Also where it kept the store in which they met."""
    ended = server.run(*(Rank("die" if rank == lost else "none", timeout_s=35) for rank in range(3)))
    for rank in {0, 1, 2} - {lost}:
        _assert_told(ended[rank], f"rank {rank} of 3", f"has lost rank {lost} (process ")


def test_whoever_is_stopped_for_longer_than_the_time_out_is_named_and_ends_too(server: RankServer) -> None:
    """Also where it keeps the store in which they met."""
    runs = [[Rank("stop" if rank == stopped else "none", timeout_s=3) for rank in range(2)] for stopped in range(2)]
    for stopped, ended in enumerate(server.run_all(runs)):
        _assert_told(ended[1 - stopped], f"has lost rank {stopped} (process ", "no answer for 3 s (world.timeout_s)")
        assert ended[stopped].status == 1, "woken, it finds that the run is over"
        assert ended[stopped].seconds < LATER_S
        assert "Traceback" not in ended[stopped].said


def test_whoever_is_stopped_for_less_goes_on(server: RankServer) -> None:
    ended = server.run(Rank(), Rank("stop", seconds=1.0))
    assert [(each.status, each.said) for each in ended] == [(0, ""), (0, "")]
    assert ended[0].seconds > 1


def test_whoever_works_for_longer_than_the_time_out_is_not_called_lost(server: RankServer) -> None:
    ended = server.run(Rank(timeout_s=2), Rank("sleep", seconds=3.5))
    _assert_told(ended[0], "waited 2 s", "rank 1 is at work", "raise world.timeout_s")
    assert (ended[1].status, ended[1].said) == (1, ""), "rank 0 has said it"


def test_whoever_fails_says_so_itself(server: RankServer) -> None:
    ended = server.run(Rank(), Rank("fail"), Rank())
    _assert_told(ended[1], "a row is bad", status=2)
    assert [(ended[rank].status, ended[rank].said) for rank in (0, 2)] == [(2, ""), (2, "")]


def test_ranks_that_were_started_with_other_facts_are_named(server: RankServer) -> None:
    usual = {"version": "1", "dense.lr": "0.1", "seed": "0"}
    odd = {"version": "2", "dense.lr": "0.2", "seed": "0"}
    pair, three = server.run_all(
        [[Rank(facts=usual), Rank(facts=odd)], [Rank(facts=odd), Rank(facts=usual), Rank(facts=usual)]]
    )
    for each in pair:
        _assert_told(each, "version is 2 in rank 1 and 1 in rank 0; dense.lr is 0.2 in rank 1", status=2)
        assert "seed" not in each.said
    for each in three:
        _assert_told(each, "version is 2 in rank 0 and 1 in rank 1", status=2)


def test_ranks_that_were_told_other_sizes_are_named(server: RankServer) -> None:
    more, fewer = server.run_all([[Rank(), Rank(words={"WORLD_SIZE": "3"})], [Rank(words={"WORLD_SIZE": "3"}), Rank()]])
    _assert_told(more[0], "rank 1 was started with WORLD_SIZE=3 and rank 0 with WORLD_SIZE=2", status=2)
    _assert_told(more[1], "rank 0 was started with WORLD_SIZE=2 and rank 1 with WORLD_SIZE=3", status=2)
    _assert_told(fewer[0], "rank 1 was started with WORLD_SIZE=2 and rank 0 with WORLD_SIZE=3", status=2)
    _assert_told(fewer[1], "rank 0 was started with WORLD_SIZE=3 and rank 1 with WORLD_SIZE=2", status=2)


def test_two_processes_of_one_rank_are_named(server: RankServer) -> None:
    ended = server.run(Rank(timeout_s=3), Rank(timeout_s=3), Rank(words={"RANK": "1", "LOCAL_RANK": "1"}))
    _assert_told(ended[0], "rank 2 of 3, which did not come")
    told = sorted(ended[1:], key=lambda each: "is there already" in each.said)
    _assert_told(told[1], "rank 1 (process ", "is there already", "is rank 1 too", status=2)


def test_processes_may_meet_again(server: RankServer) -> None:
    """As those of a program that trains twice."""
    ended = server.run(*[Rank(num_runs=3, timeout_s=10)] * 2)
    assert [(each.status, each.said) for each in ended] == [(0, ""), (0, "")]


def test_a_port_that_is_taken_is_named(server: RankServer) -> None:
    with socket.socket() as stranger:
        stranger.bind(("", 0))
        stranger.listen()
        words = {"MASTER_PORT": str(stranger.getsockname()[1])}
        ended = server.run(*[Rank(words=words, timeout_s=2)] * 2)
    _assert_told(ended[0], f"cannot listen at port {words['MASTER_PORT']}", "set MASTER_PORT", status=2)
    _assert_told(ended[1], "who listens there is no process of recmill", "set another MASTER_PORT")


def test_a_wrong_address_is_named(server: RankServer) -> None:
    nowhere, silent = {"MASTER_ADDR": "no-such-host.invalid"}, {"MASTER_PORT": str(free_port())}
    unknown, closed = server.run_all(
        [[Rank(words=nowhere, timeout_s=2)] * 2, [Rank(timeout_s=2), Rank(words=silent, timeout_s=2)]]
    )
    for each in unknown:
        _assert_told(each, "MASTER_ADDR=no-such-host.invalid is not known here", "waited 2 s (world.timeout_s)")
    _assert_told(closed[0], "rank 1 of 2, which did not come")
    _assert_told(closed[1], f"localhost:{silent['MASTER_PORT']}", "nobody listens there", "correct MASTER_ADDR")


def test_differences_are_told_by_name_and_not_without_end() -> None:
    usual = {f"setting_{number}": "a" for number in range(9)}
    told = describe_difference({**usual, "setting_3": "b" * 99}, usual, 1, 0)
    assert told == f"setting_3 is {'b' * 60}… in rank 1 and a in rank 0"
    assert describe_difference({}, usual, 1, 0).endswith(
        "setting_3 is not there in rank 1 and a in rank 0; and 5 more of rank 1"
    )


@pytest.mark.parametrize(
    ("said", "is_of_a_connection"),
    [
        ("[/third_party/gloo/gloo/transport/tcp/pair.cc:553] Connection closed by peer [127.0.0.1]:42888.", True),
        ("[…/unbound_buffer.cc:78] Timed out waiting 4000ms for recv operation to complete", True),
        ("Application timeout caused pair closure", True),
        ("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory", False),
        ("mat1 and mat2 shapes cannot be multiplied", False),
    ],
)
def test_errors_of_connections_are_told_from_others(said: str, is_of_a_connection: bool) -> None:
    assert is_broken(RuntimeError(said)) is is_of_a_connection
    assert not is_broken(ValueError(said))


def test_work_is_not_waited_for_without_end(tmp_path: Path) -> None:
    assert within(10, lambda: tmp_path) == tmp_path
    with pytest.raises(FileNotFoundError):
        within(10, (tmp_path / "nothing").read_text)
    with socket.socket() as silent:
        silent.bind(("localhost", 0))
        silent.listen()
        with pytest.raises(TimeoutError, match="no answer for 0 s"):
            within(0.05, silent.accept)
