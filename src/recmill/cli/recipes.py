"""`recmill recipes`: the settings that have a name."""

import argparse

from recmill.cli.options import Verbs


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
    from recmill.recipes import RECIPES, find_recipe

    width = max(map(len, RECIPES))
    for name in RECIPES:
        print(f"{name:<{width}}  {(find_recipe(name).__doc__ or '').strip().splitlines()[0]}")
    return 0


def run_show(args: argparse.Namespace) -> int:
    """The whole description as comments, and the settings."""
    import inspect

    from recmill.recipes import find_recipe
    from recmill.settings.tree import to_toml

    build = find_recipe(args.name)
    for line in inspect.cleandoc(build.__doc__ or "").splitlines():
        print(f"# {line}".rstrip())
    print()
    print(to_toml(build()), end="")
    return 0
