"""`recmill recipes`: the settings that have a name."""

import argparse
from collections.abc import Callable
from typing import TYPE_CHECKING

from recmill.cli.train import Verbs

if TYPE_CHECKING:
    from recmill.settings.tree import Settings


def add_parser(verbs: Verbs) -> None:
    """Declare the verb."""
    parser = verbs.add_parser("recipes", help="list the named settings, or show those of one name")
    parser.set_defaults(run_verb=run_list)
    actions = parser.add_subparsers(title="actions", metavar="ACTION")
    show = actions.add_parser("show", help="print all settings of a recipe as TOML, which --config takes back")
    show.add_argument("name", metavar="NAME", help="one of the list")
    show.set_defaults(run_verb=run_show)


def run_list(_args: argparse.Namespace) -> int:
    """Every name, and the first line of what its recipe says of itself."""
    from recmill.recipes import RECIPES, SEQUENCE_RECIPES

    names = [*RECIPES, *SEQUENCE_RECIPES]
    width = max(map(len, names))
    for name in names:
        print(f"{name:<{width}}  {(find_any(name).__doc__ or '').strip().splitlines()[0]}")
    return 0


def find_any(name: str) -> "Callable[[], Settings]":
    """The function behind a name, of whatever kind of model."""
    from recmill.recipes import SEQUENCE_RECIPES, find_recipe, find_sequence_recipe

    return find_sequence_recipe(name) if name in SEQUENCE_RECIPES else find_recipe(name)


def run_show(args: argparse.Namespace) -> int:
    """The whole description as comments, and the settings."""
    import inspect

    from recmill.settings.tree import to_toml

    build = find_any(args.name)
    for line in inspect.cleandoc(build.__doc__ or "").splitlines():
        print(f"# {line}".rstrip())
    print()
    print(to_toml(build()), end="")
    return 0
