"""Whether a saved state is of the run in whose directory it lies: by the id that both have, and by their settings."""

import re
from pathlib import Path
from typing import Any

from recmill.errors import ConfigError, RunError
from recmill.files import CONFIG, MANIFEST, find_damage, has_manifest, read_listing
from recmill.own_files import read_own_toml
from recmill.run_stamp import refuse_foreign
from recmill.settings.changes import find_difference
from recmill.settings.tree import Settings, from_tree

_STEP = re.compile(r"step_(\d+)(_.*)?")


def refuse_foreign_state(directory: Path, run_id: str, config: Settings) -> None:
    """Complain about a state of another run than the one with this id and these settings; not about a damaged one."""
    try:
        manifest = read_listing(directory) if has_manifest(directory) else {"files": {}}
    except RunError:
        return  # whoever reads all of it says what is wrong, and falls back on another
    refuse_foreign(directory / MANIFEST, manifest, run_id)
    if (saved := _settings_of(directory, manifest, type(config))) is None:
        return
    if difference := find_difference(saved, config):
        raise RunError(
            f"{directory / CONFIG} and the {CONFIG} of the run do not go together: {difference}; one of them was "
            "copied there or altered; restore the one that belongs here"
        )


def _settings_of(directory: Path, manifest: dict[str, Any], kind: type[Settings]) -> Any:
    """The settings that an intact state has beside it; None of a damaged one, and of weights of older versions."""
    path, stated = directory / CONFIG, manifest["files"].get(CONFIG)
    if stated is None or any(find_damage(directory, {"files": {CONFIG: stated}})):
        return None
    try:
        return from_tree(kind, read_own_toml(path), str(path))
    except (ConfigError, RunError) as error:
        raise RunError(f"{path} does not fit the run: {error}") from None


def refuse_misplaced(directory: Path, step: int) -> None:
    """Complain about a state under the name of another step."""
    found = _STEP.fullmatch(directory.name)
    if found and int(found[1]) != step:
        raise RunError(f"{directory} holds the state after step {step:,}: it was renamed; give it back its name")
