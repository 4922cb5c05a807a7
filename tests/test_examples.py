"""The examples do what they say, on less data."""

from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"
SMALL = {"clicks": {"rows": 20_000}, "sequences": {"users": 300}, "own_model": {"rows": 8_000}}
PRINTS = {
    "clicks": ("Results(step=30", "mean prediction of the last day: 0.", "vectors of column cat_3: ("),
    "sequences": ("last weights  NDCG@10 0.", "markov        NDCG@10 0."),
    "own_model": ("Results(step=6", "[0."),
}


def load_example(name: str) -> ModuleType:
    spec = spec_from_file_location(name, EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_every_example_is_run() -> None:
    assert {path.stem for path in EXAMPLES.glob("*.py")} == SMALL.keys() == PRINTS.keys()


@pytest.mark.parametrize("name", SMALL)
def test_an_example_runs(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    load_example(name).main(tmp_path, **SMALL[name])
    printed = capsys.readouterr()
    for text in PRINTS[name]:
        assert text in printed.out
    assert printed.err == "", "nothing is printed unless it is asked for"
