import recmill


def test_every_public_name_is_importable_and_nothing_else_is_listed() -> None:
    assert sorted(recmill.__all__) == sorted(recmill._HOME)
    for name in recmill.__all__:
        assert getattr(recmill, name).__name__ == name


def test_a_strange_name_is_an_attribute_error() -> None:
    assert not hasattr(recmill, "Trainer")
