"""The fuzzer finds what it is there to find, and its damage is the same every time."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fuzz import __main__ as fuzz
from tests.fuzz.messages import messages_tried
from tests.fuzz.mutations import mutated
from tests.fuzz.seeds import SEEDS, planted


def test_the_same_number_does_the_same_damage() -> None:
    content = bytes(range(256)) * 4
    made = [mutated(content, number) for number in range(200)]
    assert made == [mutated(content, number) for number in range(200)]
    assert len(set(made)) > 150


@pytest.mark.parametrize("name", ["npy", "msprobe debug.json"])
def test_what_breaks_is_told_with_its_content(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TDBG_CACHE_DIR", "")
    seed = planted(name, tmp_path)
    whole, damaged = seed.file.read_bytes(), b"\x93NUMPY"
    assert list(fuzz.tried(seed, [whole, damaged])) == []
    ran = fuzz._run

    def careless(words: tuple[str, ...]) -> int:
        return 3 if seed.file.read_bytes() == damaged else ran(words)

    monkeypatch.setattr(fuzz, "_run", careless)
    (broken,) = fuzz.tried(seed, [whole, damaged, whole])
    assert (broken.name, broken.content, broken.why) == (name, damaged, "exit code 3")


def test_the_corpus_has_files_of_every_kind() -> None:
    assert set(fuzz.corpus()) == {name.replace("-", " ") for name in SEEDS}


def test_what_broke_is_added_to_the_corpus_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fuzz, "CORPUS", tmp_path / "corpus.tar.xz")
    kind = tmp_path / "findings" / "msprobe-debug.json"
    kind.mkdir(parents=True)
    (kind / "000").write_bytes(b"one")
    fuzz.packed(tmp_path / "findings")
    (kind / "000").write_bytes(b"another")
    (kind / "001").write_bytes(b"one")
    for _ in range(2):
        fuzz.packed(tmp_path / "findings")
        assert fuzz.corpus() == {"msprobe debug.json": [b"another", b"one"]}


def test_damaged_messages_leave_the_server_answering() -> None:
    assert messages_tried(24) == (24, [])
