"""Files that are well formed outside and wrong inside."""

from __future__ import annotations

import json
from random import Random

from soak import hostile
from soak.sealing import put_together, sealed_document, taken_apart
from varlearn.files.checked_json import json_line

_TOML = ("seed = 3", "[optim]", "lr = 0.1", 'name = "ivon"', "[data]", 'ood = ["svhn"]', "[model]", "hidden = [5]")
_WORDS = (
    "inf", "nan", "[[a]]", "[optim.lr]", "x" * 3000, "'''", "\0", '"\\ud800"', "{", "1e400", "2024-01-01", "=", "[]",
    "[a.b.c]", "name = 3", 'name = "sgd"', "-1", '["a"]', "9" * 5000, "seed = true", "lr = []", "0x10", "[optim]",
)  # fmt: skip


def hostile_sealed(good: bytes, random: Random) -> bytes:
    """A sealed file with other metadata, other tensors, or other bytes."""
    draw = random.random()
    if draw < 0.1:
        return other_bytes(good, random)
    header, metadata, tensors = taken_apart(good)
    if draw < 0.7:
        metadata = hostile.changed(metadata, random)
    elif draw < 0.9:
        header = hostile.changed(header, random)
    else:
        tensors = other_bytes(tensors, random)
    return put_together(header, metadata, tensors)


def hostile_document(good: bytes, random: Random) -> bytes:
    """A JSON document with other values; sometimes without a checksum, sometimes no JSON."""
    draw = random.random()
    if draw < 0.1:
        return other_bytes(good, random)
    values = json.loads(good)
    del values["sha256"]
    values = hostile.changed(values, random)
    return sealed_document(values) if draw < 0.8 else json.dumps(values).encode()


def hostile_lines(good: bytes, random: Random) -> bytes:
    """A log with other records, most of them with a right checksum."""
    if random.random() < 0.1:
        return other_bytes(good, random)
    lines = [""]
    for text in good.decode().splitlines():
        record = {key: value for key, value in json.loads(text).items() if key not in ("after", "crc32")}
        if random.random() < 0.2:
            record = hostile.changed(record, random)
        try:
            lines.append(json_line(record, lines[-1]))
        except (TypeError, ValueError):  # no object, or a number that JSON has no word for
            lines.append(json.dumps(record) + "\n")
    return "".join(lines).encode()


def hostile_toml(good: bytes, random: Random) -> bytes:
    """A settings file with other lines; `good` is not used."""
    text = list(_TOML)
    for _ in range(random.choice((1, 1, 2, 4))):
        place = random.randrange(len(text))
        line, word = text[place], random.choice(_WORDS)
        text[place] = random.choice([word, f"{line.partition('=')[0]}= {word}", line + word, f"{line}\n{word}"])
    data = "\n".join(text).encode()
    return other_bytes(data, random) if random.random() < 0.1 else data


def other_bytes(good: bytes, random: Random) -> bytes:
    """The bytes with a few of them changed, or only some of them."""
    out = bytearray(good[: random.randrange(len(good) + 1)] if random.random() < 0.3 else good)
    for _ in range(random.choice((1, 2, 10))):
        if out:
            out[random.randrange(len(out))] = random.choice((0, 10, 34, 92, 123, 255, random.randrange(256)))
    return bytes(out)
