"""Which raw files a run reads, as a text that is kept with all that it saves; and what has become of them since."""

from pathlib import Path
from urllib.parse import quote, unquote

from recmill.data.logs.opening import paths_of
from recmill.files import STDIN
from recmill.sampled import sampled_digest, size_of
from recmill.settings.data import DataConfig

_OPENING = "files:"


def identity_of_logs(data: DataConfig) -> str:
    """The names and digests of all raw files of some settings; empty if the rows come through standard input."""
    if data.dir == STDIN:
        return ""
    home = Path(data.dir)
    paths = sorted(set(paths_of(data)))
    return _OPENING + ",".join(f"{quote(_name_in(home, path), safe='')}={sampled_digest(path)}" for path in paths)


def _name_in(home: Path, path: Path) -> str:
    return str(path.relative_to(home)) if home.is_dir() and path.is_relative_to(home) else path.name


def difference_of_logs(was: str, now: str) -> str | None:
    """In words, the first file that is not what it was; None of identities that are not of raw files, or are equal."""
    if not was.startswith(_OPENING) or not now.startswith(_OPENING):
        return None
    before, after = _digests(was), _digests(now)
    if list(before.values()) == list(after.values()):
        return None  # they have other names, and that is all
    for name, digest in before.items():
        if name not in after:
            return f"{name} is no longer among them"
        if size_of(after[name]) != size_of(digest):
            return f"{name} had {size_of(digest):,} bytes then and has {size_of(after[name]):,} now"
        if after[name] != digest:
            return f"{name} is of the same size as then and has another content"
    return next((f"{name} was not among them then" for name in after if name not in before), None)


def is_of_logs(identity: str) -> bool:
    """Whether an identity is of raw files."""
    return identity.startswith(_OPENING)


def _digests(identity: str) -> dict[str, str]:
    pairs = (pair.partition("=") for pair in identity.removeprefix(_OPENING).split(",") if pair)
    return {unquote(name): digest for name, _, digest in pairs}
