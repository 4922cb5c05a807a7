"""The other processes of a run: how they meet, whether they do the same work, and who of them is lost.

1. All meet in a store that the first of them keeps, or torchrun's agent. Each leaves a card there: how many it takes
   them to be, where it runs, and a digest of its facts (version, settings, data). Where facts differ, nobody trains.
2. While they work, a thread of each answers when it is called, whatever its process is doing.
3. Where a collective fails, its error is of two neighbours and says little. Then all are called: who does not answer is
   lost, who has ended has said why, and who answers says what keeps it.
"""

import hashlib
import itertools
import json
import os
import re
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Protocol, TypeVar

from recmill.errors import ConfigError, PeerFailed, PeerLost, RecmillError

T = TypeVar("T")
Facts = Mapping[str, str]  # what must be the same in all processes of a run, by name

_ANSWER_S = 2.0  # a thread that does nothing else answers in milliseconds
_LINGER_S = 3.0  # who keeps the store stays so long for those that have not read why it ends
_KNOCK_S = 0.2
_FOREVER = timedelta(days=365)
_SHOWN = 4  # differences of a rank, and ranks
_SHOWN_CHARACTERS = 60  # of a value
_MEETINGS = itertools.count()  # of this process; the others have had as many
# What gloo says; NCCL and the store have classes of errors.
_BROKEN = re.compile(r"\bgloo/|Connection (?:closed|reset) by peer|Timed out waiting \d+ms|caused pair closure")
_WAITED = re.compile(r"timed out|timeout", re.IGNORECASE)
_RESUME = "what the run has saved is good: run the same command again with --resume"


class Member(Protocol):
    """Who a process is, and where all meet."""

    @property
    def rank(self) -> int:
        """Among all."""

    @property
    def size(self) -> int:
        """Of all."""

    @property
    def address(self) -> str:
        """The host of the first."""

    @property
    def port(self) -> int:
        """Where it listens."""

    @property
    def attempt(self) -> int:
        """How often all were started before."""


@dataclass(frozen=True)
class Card:
    """What a process says of itself when it comes."""

    size: int
    host: str
    pid: int
    digest: str

    def describe(self, rank: int) -> str:
        """As a person looks for it."""
        return f"rank {rank} (process {self.pid} on {self.host})"


class Peers:
    """The processes of a run as one of them knows them; of one that is alone, nobody."""

    def __init__(self, member: Member, store: Any, timeout_s: float, *, keeps_store: bool) -> None:
        self.store = store
        self.stage = "while they met"  # what this process has come to, as told to those that wait for it
        self._member = member
        self._timeout_s = timeout_s
        self._keeps_store = keeps_store
        self._cards: dict[int, Card] = {}
        self._answering: list[int] = []
        self._to_wake: list[int] = []
        self._thread: threading.Thread | None = None

    def compare(self, facts: Facts) -> None:
        """Return when all have come and have the same facts; complain where they have not."""
        rank, size = self._member.rank, self._member.size
        text = json.dumps(dict(facts))
        card = Card(size, socket.gethostname(), os.getpid(), hashlib.sha256(text.encode()).hexdigest()[:32])
        self.store.set(f"facts_{rank}", text)
        seated = Card(**json.loads(self.store.compare_set(f"card_{rank}", "", json.dumps(asdict(card)))))
        if seated != card:
            raise ConfigError(
                f"{seated.describe(rank)} is there already, and this process ({card.pid} on {card.host}) is rank "
                f"{rank} too; give every process a RANK of its own, and every run a MASTER_PORT of its own"
            )
        until = time.monotonic() + self._timeout_s
        try:
            for other in range(size):
                self._cards[other] = Card(**json.loads(self._await(f"card_{other}", other, until)))
                if self._cards[other].size != size:
                    raise ConfigError(
                        f"rank {other} was started with WORLD_SIZE={self._cards[other].size} and rank {rank} with "
                        f"WORLD_SIZE={size}; start all processes of a run with the same number"
                    )
            self._refuse_differences()
        except ConfigError:
            self._say_ended(ConfigError.exit_status)
            self._linger([other for other in self._cards if other != rank])
            raise

    def _await(self, key: str, other: int, until: float) -> bytes:
        rank = self._member.rank
        while not self.store.check([key]):
            if time.monotonic() > until:
                missing = [each for each in range(self._member.size) if not self.store.check([f"card_{each}"])]
                raise PeerLost(
                    f"rank {rank} waited {self._timeout_s:g} s (world.timeout_s) at {_place(self._member)} "
                    f"for {_list_ranks(missing or [other])} of {self._member.size}, which did not come; look at what "
                    "it says, or start it with the same MASTER_ADDR and MASTER_PORT"
                )
            time.sleep(0.01)
        return bytes(self.store.get(key))

    def _refuse_differences(self) -> None:
        counts = Counter(card.digest for card in self._cards.values())  # the first of equal counts: that of rank 0
        usual = counts.most_common(1)[0][0]
        odd = [rank for rank, card in self._cards.items() if card.digest != usual]
        if not odd:
            return
        model = next(rank for rank, card in self._cards.items() if card.digest == usual)
        facts = {rank: json.loads(self.store.get(f"facts_{rank}")) for rank in (model, *odd[:_SHOWN])}
        told = [describe_difference(facts[rank], facts[model], rank, model) for rank in odd[:_SHOWN]]
        more = f"; {_list_ranks(odd[_SHOWN:])} too" if odd[_SHOWN:] else ""
        raise ConfigError(
            f"the processes of this run were not started alike: {'; '.join(told)}{more}; "
            "start all with the same recmill, settings and data"
        )

    def watch(self, line: Any) -> None:
        """Answer calls on a connection to the store that is the thread's own."""
        self._thread = threading.Thread(target=self._answer, args=(line,), name="recmill-peers", daemon=True)
        self._thread.start()

    def _answer(self, line: Any) -> None:
        with suppress(RuntimeError):  # the store is gone, and whoever computes will notice
            line.wait([f"call_{self._member.rank}"], _FOREVER)
            line.set(f"here_{self._member.rank}", self.stage)

    def explain(self, error: BaseException) -> RecmillError:
        """Who is lost, or has ended, or keeps all others waiting, where this process's collective has failed."""
        has_waited = _WAITED.search(str(error)) is not None
        try:
            ended, here = within(_ANSWER_S + 1, lambda: self._call(has_waited))
        except (TimeoutError, RuntimeError):
            return self._lost([0], has_waited) if not _agent_keeps_store() else self._lost([], has_waited)
        self._answering = sorted(here)
        others = [rank for rank in range(self._member.size) if rank != self._member.rank]
        if lost := [rank for rank in others if rank not in ended and rank not in here]:
            return self._lost(lost, has_waited)
        if ended:
            return PeerFailed(ended[min(ended)])
        if not has_waited:
            return self._lost([], has_waited)
        stages = "; ".join(f"rank {rank} is {here[rank]}" for rank in sorted(here)[:_SHOWN])
        return PeerLost(
            f"rank {self._member.rank} waited {self._timeout_s:g} s ({self.stage}) for ranks that are still at work: "
            f"{stages}; raise world.timeout_s if they need so long, and {_RESUME}"
        )

    def _call(self, has_waited: bool) -> tuple[dict[int, int], dict[int, str]]:
        """The statuses of those that have ended, and what those do that answer; where all do, one is about to end."""
        ended, here = dict[int, int](), dict[int, str]()
        others = [rank for rank in range(self._member.size) if rank != self._member.rank]
        for rank in others:
            self.store.set(f"call_{rank}", "?")
        began = time.monotonic()
        while time.monotonic() - began < _ANSWER_S:
            for rank in others:
                if rank not in ended and self.store.check([f"ended_{rank}"]):
                    ended[rank] = int(self.store.get(f"ended_{rank}"))
                elif rank not in here and self.store.check([f"here_{rank}"]):
                    here[rank] = self.store.get(f"here_{rank}").decode()
            if (ended or has_waited) and len(ended.keys() | here.keys()) == len(others):
                break
            time.sleep(0.02)
        return ended, {rank: stage for rank, stage in here.items() if rank not in ended}

    def _lost(self, ranks: Sequence[int], has_waited: bool) -> PeerLost:
        who = ", ".join(self._cards[rank].describe(rank) if rank in self._cards else f"rank {rank}" for rank in ranks)
        if not ranks:
            return PeerLost(
                f"rank {self._member.rank} of {self._member.size} ({self.stage}) lost its connection to the other "
                f"ranks; look at the network, or at the process that started them; {_RESUME}"
            )
        why = "its connection is closed: it was killed, or has run out of memory, or its host is gone"
        if has_waited:
            why = f"no answer for {self._timeout_s:g} s (world.timeout_s): it is stopped, or its host is gone"
        self._to_wake = [rank for rank in ranks if rank in self._cards and is_stopped(self._cards[rank])]
        return PeerLost(
            f"rank {self._member.rank} of {self._member.size} ({self.stage}) has lost {who}: {why}; {_RESUME}"
        )

    def end(self, status: int | None = None) -> None:
        """Say that this process ends, with a status if it is in error; call no store that is lost."""
        if status is None:
            with suppress(RuntimeError, TimeoutError):
                within(_ANSWER_S, lambda: self.store.set(f"call_{self._member.rank}", "end"))
                if self._thread:
                    self._thread.join(_ANSWER_S)
            return
        for rank in self._to_wake:  # first, as one of them may keep the store
            wake(self._cards[rank])
        with suppress(RuntimeError, TimeoutError):
            within(_ANSWER_S, lambda: self._say_ended(status))
            within(_LINGER_S + 1, lambda: self._linger([*self._answering, *self._to_wake]))

    def _say_ended(self, status: int) -> None:
        self.store.set(f"ended_{self._member.rank}", str(status))
        self.store.check(["ended"])  # when this is answered, that is known

    def _linger(self, ranks: Sequence[int]) -> None:
        """Of who keeps the store: stay until others have ended, or for a while."""
        began = time.monotonic()
        while self._keeps_store and time.monotonic() - began < _LINGER_S:
            if all(self.store.check([f"ended_{rank}"]) for rank in ranks):
                time.sleep(0.05)
                return
            time.sleep(0.02)


def is_broken(error: BaseException) -> bool:
    """Whether an error is of the connection to other processes."""
    if not isinstance(error, RuntimeError):
        return False
    import torch.distributed as dist

    return isinstance(error, dist.DistError) or _BROKEN.search(str(error)) is not None


def meet(member: Member, facts: Facts, timeout_s: float) -> Peers:
    """Find the other processes, and make sure that they do the same work; complain if they do not come in time."""
    import torch.distributed as dist

    began = time.monotonic()
    keeps_store = member.rank == 0 and not _agent_keeps_store()
    _find_host(member, timeout_s, is_there=not keeps_store)
    left_s = max(1.0, timeout_s - (time.monotonic() - began))
    tcp = _open_store(member, left_s, keeps_store=keeps_store)
    # torchrun keeps its store when it starts processes again, with the addresses of those that died in it, and a
    # program that trains twice may find what it left the first time
    prefix = f"attempt_{member.attempt}_{next(_MEETINGS)}"
    peers = Peers(member, dist.PrefixStore(prefix, tcp), timeout_s, keeps_store=keeps_store)  # type: ignore[attr-defined]
    try:
        within(timeout_s + _LINGER_S + 2, lambda: peers.compare(facts))
        peers.watch(dist.PrefixStore(prefix, within(timeout_s, tcp.clone)))  # type: ignore[attr-defined]
    except (RuntimeError, TimeoutError) as error:
        raise PeerLost(
            f"rank {member.rank} of {member.size} lost the first process at {_place(member)} while they met: "
            f"{_first_line(error)}; look at what it says, and start all of them again"
        ) from error
    return peers


def _find_host(member: Member, timeout_s: float, *, is_there: bool) -> None:
    """Return when the address is known and, of a process that has to be there, listens; complain after a while."""
    began, trouble = time.monotonic(), ""
    while True:
        try:
            found = socket.getaddrinfo(member.address, member.port, type=socket.SOCK_STREAM)
            if found and not is_there:
                return
            with socket.create_connection((member.address, member.port), timeout=min(timeout_s, 5.0)):
                return
        except socket.gaierror as error:
            trouble = f"MASTER_ADDR={member.address} is not known here ({error.strerror}); correct it"
        except (OSError, UnicodeError) as error:
            trouble = f"nobody listens there ({error}); start rank 0 on that host, or correct MASTER_ADDR, MASTER_PORT"
        if time.monotonic() - began > timeout_s:
            raise PeerLost(
                f"rank {member.rank} of {member.size} waited {timeout_s:g} s (world.timeout_s) for the first process "
                f"at {_place(member)}: {trouble}"
            )
        time.sleep(_KNOCK_S)


def _open_store(member: Member, timeout_s: float, *, keeps_store: bool) -> Any:
    """The store that all share, kept by this process or by another."""
    from torch.distributed import DistError, TCPStore  # type: ignore[attr-defined]

    where, limit = _place(member), timedelta(seconds=timeout_s)
    try:
        return within(
            timeout_s + 1,  # another program that listens and says nothing would be waited for without end
            lambda: TCPStore(
                member.address, member.port, None, keeps_store, limit, wait_for_workers=False, multi_tenant=True
            ),
        )
    except (DistError, TimeoutError) as error:
        if keeps_store and "EADDRINUSE" in str(error):
            raise ConfigError(
                f"rank 0 of {member.size} cannot listen at port {member.port}: another program has it, or another run; "
                "set MASTER_PORT to a free one, the same for all processes"
            ) from error
        who = "rank 0 cannot reach itself" if keeps_store else "who listens there is no process of recmill"
        raise PeerLost(
            f"rank {member.rank} of {member.size} found nobody to meet at {where} within {timeout_s:.0f} s "
            f"(world.timeout_s): {who} ({_first_line(error)}); correct MASTER_ADDR, or set another MASTER_PORT"
        ) from error


def describe_difference(odd: Facts, usual: Facts, rank: int, model: int) -> str:
    """In words, where the facts of a rank are not those of another."""
    names = [name for name in dict.fromkeys((*usual, *odd)) if odd.get(name) != usual.get(name)]
    told = [
        f"{name} is {_shown(odd.get(name))} in rank {rank} and {_shown(usual.get(name))} in rank {model}"
        for name in names[:_SHOWN]
    ]
    return "; ".join([*told, *([f"and {len(names) - _SHOWN} more of rank {rank}"] if names[_SHOWN:] else [])])


def within(limit_s: float, work: Callable[[], T]) -> T:
    """What the work returns or raises; `TimeoutError` if it takes longer, and it is left alone then."""
    done: list[tuple[T | None, BaseException | None]] = []

    def run() -> None:
        try:
            done.append((work(), None))
        except BaseException as error:
            done.append((None, error))

    thread = threading.Thread(target=run, name="recmill-within", daemon=True)
    thread.start()
    thread.join(limit_s)
    if not done:
        raise TimeoutError(f"no answer for {limit_s:.0f} s")
    value, error = done[0]
    if error is not None:
        raise error
    return value  # type: ignore[return-value]


def is_stopped(card: Card) -> bool:
    """Whether a process that has the same starter as this one was sent SIGSTOP."""
    try:
        state, parent = Path(f"/proc/{card.pid}/stat").read_text().rpartition(")")[2].split()[:2]
    except (OSError, ValueError):
        return False
    return card.host == socket.gethostname() and state == "T" and int(parent) == os.getppid()


def wake(card: Card) -> None:
    """Let a stopped process go on, to find that it is given up: who has started it could not end it otherwise."""
    with suppress(OSError):
        os.kill(card.pid, signal.SIGCONT)


def _agent_keeps_store() -> bool:
    return os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"


def _place(member: Member) -> str:
    return f"{member.address}:{member.port}"


def _list_ranks(ranks: Sequence[int]) -> str:
    shown = ", ".join(map(str, ranks[:_SHOWN])) + (", …" if ranks[_SHOWN:] else "")
    return f"rank {shown}" if len(ranks) == 1 else f"ranks {shown}"


def _shown(value: str | None) -> str:
    if value is None:
        return "not there"
    return value if len(value) <= _SHOWN_CHARACTERS else f"{value[:_SHOWN_CHARACTERS]}…"


def _first_line(error: BaseException) -> str:
    return (str(error).splitlines() or [type(error).__name__])[0]
