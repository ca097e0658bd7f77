from varlearn.train.joined_names import flattened


def test_order_empty_mappings_and_separators() -> None:
    assert list(flattened({"b": {"y": 1, "x": {"z": 2}}, "a": 3, "c": {}}, "/").items()) == [
        ("b/y", 1),
        ("b/x/z", 2),
        ("a", 3),
    ]
