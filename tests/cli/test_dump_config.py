"""``tdbg dump-config``: files that are written, files that are checked, questions on a terminal."""

from __future__ import annotations

import errno
import json
import os
import pty
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

from tests.cli.running import run
from tests.json_page import assert_described
from tests.recording.examples import COMMON, E2E, EXAMPLES, changed
from tui_debugger.opener import METADATA_LIMIT

Capsys = pytest.CaptureFixture[str]
BASE = next(each for each in EXAMPLES if each.name == "2.4 O0 and O1").content
NEW = ("dump-config", "--yes", "--mindspore", "2.4", "--device", "ascend", "--path", "/data/dump")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("MS_DIAGNOSTIC_DATA_PATH", raising=False)
    return tmp_path


def written(tmp_path: Path, text: str, name: str = "data_dump.json") -> Path:
    path = tmp_path / name
    path.write_text(text, "utf-8")
    return path


# -- --check ---------------------------------------------------------------------------------------


def test_a_right_file_is_explained(capsys: Capsys, tmp_path: Path) -> None:
    path = written(tmp_path, changed(BASE, {}))
    answer = run(capsys, "dump-config", "--check", path, "--mindspore", "2.4")
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[0] == "checked for MindSpore 2.4 (--mindspore)"
    row = next(line for line in answer.lines if line.split()[1:2] == ["dump_mode"])
    assert "all of them" in row
    assert row.split()[0] == str(path.read_text().splitlines().index('        "dump_mode": 0,') + 1)
    assert f"export MINDSPORE_DUMP_CONFIG={path}" in answer.lines
    assert "no mistakes" in answer.lines[-1]


def test_a_mistake_says_what_where_and_what_to_do(capsys: Capsys, tmp_path: Path) -> None:
    path = written(tmp_path, changed(BASE, {f"{COMMON}.iteration": "0 | 5-8"}))
    line = path.read_text().splitlines().index('        "iteration": "0 | 5-8",') + 1
    answer = run(capsys, "dump-config", "--check", path, "--mindspore", "2.4")
    assert answer.code == 1
    start = next(at for at, each in enumerate(answer.lines) if each.startswith("rejected:"))
    what, where, hint = answer.lines[start : start + 3]
    assert what.startswith("rejected: common_dump_settings.iteration: '0 | 5-8' has blanks")
    assert where == f"  where: {path}, line {line}"
    assert hint == '  do:    write "0|5-8"'
    assert answer.lines[-1].startswith("1 mistake, ")


def test_without_a_version_the_newest_one_is_named(
    capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, changed(BASE, {}))
    assert "no version of MindSpore is known" in run(capsys, "dump-config", "--check", path).err
    real = metadata.version
    monkeypatch.setattr(metadata, "version", lambda name: "2.0.0" if name == "mindspore" else real(name))
    answer = run(capsys, "dump-config", "--check", path)
    assert answer.lines[0] == "checked for MindSpore 2.0 (MindSpore 2.0.0 is installed)"
    assert answer.code == 1, "2.0 does not know statistic_category"


def test_the_file_in_a_dump_is_checked_for_who_wrote_it(capsys: Capsys, dump: Path) -> None:
    path = next(dump.glob("rank_0/.dump_metadata/data_dump.json"))
    recorded = json.loads((path.parent / "config.json").read_text())
    answer = run(capsys, "dump-config", "--check", path, "--json")
    assert recorded["ms_version"] in answer.json["known_from"]
    assert answer.json["checked_as"].endswith(recorded["device_target"])


def test_a_document(capsys: Capsys, tmp_path: Path) -> None:
    path = written(tmp_path, changed(BASE, {f"{COMMON}.net_name": "a b"}))
    answer = run(capsys, "dump-config", "--check", path, "--mindspore", "2.4", "--json")
    assert_described(answer.json, "dump-config")
    assert (answer.code, answer.json["exit_code"], answer.json["mistakes"]) == (1, 1, 1)
    (mistake,) = [each for each in answer.json["messages"] if each["weight"] != "note"]
    assert mistake["key"] == "common_dump_settings.net_name"


def test_the_file_of_msprobe_is_recognised(capsys: Capsys, tmp_path: Path) -> None:
    path = written(tmp_path, '{"task": "statistics", "dump_path": "/d", "slice": [{"dim": 0}]}', "config.json")
    answer = run(capsys, "dump-config", "--check", path)
    assert answer.code == 1
    assert answer.lines[0] == "checked for msprobe 26.2"
    assert "PrecisionDebugger(config_path=" in answer.out


def test_stdin_is_checked() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tui_debugger", "dump-config", "--check", "-", "--mindspore", "2.4"],
        input=changed(BASE, {}),
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("kind", ["missing", "directory", "fifo", "large"])
def test_what_cannot_be_read(capsys: Capsys, tmp_path: Path, kind: str) -> None:
    path = tmp_path / "x.json"
    if kind == "directory":
        path.mkdir()
    elif kind == "fifo":
        os.mkfifo(path)
    elif kind == "large":
        with path.open("wb") as file:
            file.truncate(100_000_000)
    answer = run(capsys, "dump-config", "--check", path, "--json")
    assert answer.code == answer.json["exit_code"] == 2
    assert "cannot be read" in answer.json["error"]["what"]
    assert answer.json["error"]["hint"]


def test_a_file_as_large_as_may_be(capsys: Capsys, tmp_path: Path) -> None:
    names = ",\n".join(f'"Default/network/Conv2D-op{number}"' for number in range(200_000))
    path = written(tmp_path, changed(BASE, {f"{COMMON}.kernels": []}).replace("[]", f"[{names}]", 1))
    assert 5_000_000 < path.stat().st_size < METADATA_LIMIT
    assert run(capsys, "dump-config", "--check", path, "--mindspore", "2.4").code == 0


# -- writing ---------------------------------------------------------------------------------------


def test_a_file_is_written_and_is_right(capsys: Capsys, tmp_path: Path) -> None:
    answer = run(capsys, *NEW, "--jit-level", "O0")
    assert (answer.code, answer.err) == (0, "")
    assert answer.lines[0].startswith("data_dump.json is written, for MindSpore 2.4, Ascend, O0")
    assert f"export MINDSPORE_DUMP_CONFIG={tmp_path}/data_dump.json" in answer.out
    assert "disk: not estimated" in answer.lines[-1]
    content = json.loads((tmp_path / "data_dump.json").read_text())
    assert content[COMMON]["path"] == "/data/dump"
    assert content[E2E]["enable"] is True
    assert run(capsys, "dump-config", "--check", "data_dump.json", *NEW[2:6], "--jit-level", "O0").code == 0


def test_nothing_is_overwritten_unless_it_is_asked_for(capsys: Capsys, tmp_path: Path) -> None:
    path = written(tmp_path, "mine")
    answer = run(capsys, *NEW)
    assert answer.code == 2
    assert "there is a file already" in answer.err
    assert path.read_text() == "mine"
    (tmp_path / "link").symlink_to("nowhere")
    assert run(capsys, *NEW, "-o", "link").code == 2
    assert run(capsys, *NEW, "--force").code == 0
    assert json.loads(path.read_text())[COMMON]["net_name"] == "Net"


def test_a_file_that_is_replaced_is_there_whole_or_as_it_was(
    capsys: Capsys, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path, "mine")
    path.chmod(0o640)
    assert run(capsys, *NEW, "--force").code == 0
    assert json.loads(path.read_text())[COMMON]["net_name"] == "Net"
    assert path.stat().st_mode & 0o777 == 0o640
    before = path.read_text()

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    answer = run(capsys, *NEW, "--force", "--path", "/elsewhere")
    assert answer.code == 2
    assert "No space left on device" in answer.err
    assert path.read_text() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data_dump.json"]


@pytest.mark.parametrize("leads_to", ["data_dump.json", "nowhere"])
def test_nothing_is_written_through_a_link(capsys: Capsys, tmp_path: Path, leads_to: str) -> None:
    path = written(tmp_path, "mine")
    (tmp_path / "link").symlink_to(leads_to)
    answer = run(capsys, *NEW, "--force", "-o", "link")
    assert answer.code == 2
    assert str(tmp_path / leads_to) in answer.err
    assert path.read_text() == "mine"
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data_dump.json", "link"]


def test_stdout_holds_the_file_alone(capsys: Capsys, tmp_path: Path) -> None:
    answer = run(capsys, *NEW, "-o", "-")
    assert answer.code == 0
    assert json.loads(answer.out)[COMMON]["path"] == "/data/dump"
    assert "MINDSPORE_DUMP_CONFIG" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_options_say_what_stands_in_it(capsys: Capsys) -> None:
    answer = run(
        capsys,
        *(*NEW, "-o", "-", "--iteration", "0, 5-8", "--save", "statistic", "--input-output", "output"),
        *("--kernel", "conv", "--kernel", "name-regex(Default/.+)", "--support-device", "0,2-3"),
        *("--statistic-category", "max", "--statistic-category", "nan count", "--net-name", "Mine"),
        *("--sample-num", "10"),
    )
    common = json.loads(answer.out)[COMMON]
    assert common == {
        **common,
        "iteration": "0|5-8",
        "saved_data": "statistic",
        "input_output": 2,
        "dump_mode": 1,
        "kernels": ["conv", "name-regex(Default/.+)"],
        "support_device": [0, 2, 3],
        "statistic_category": ["max", "nan count"],
        "net_name": "Mine",
    }
    assert json.loads(answer.out)[E2E]["sample_num"] == 10


def test_o2_is_asynchronous_and_has_files_of_its_own(capsys: Capsys) -> None:
    content = json.loads(run(capsys, *NEW, "--jit-level", "O2", "-o", "-").out)
    assert E2E not in content
    assert content[COMMON]["file_format"] == "npy"


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (("--path", "relative"), "it must begin with /"),
        (("--path", "/a b"), "common_dump_settings.path"),
        (("--iteration", "8-5"), "chooses no step"),
        (("--net-name", "a b"), "common_dump_settings.net_name"),
        (("--mindspore", "two"), "no version of MindSpore"),
        (("--save", "statistic", "--device", "cpu"), "a CPU calculates no statistics"),
        (("--op-debug-mode", "3", "--device", "cpu"), "op_debug_mode 3 records nothing"),
        (("--statistic-category", "mean", "--save", "full"), "is no statistic"),
        (("--parameters", "many"), "no number of parameters"),
        (("--support-device", "5000"), "end at 4095"),
        (("--like", "/nowhere"), "/nowhere"),
        (("--jit-level", "O2", "--mindspore", "2.7"), "msprobe"),
        (("-o", "/nowhere/x.json"), "could not be written"),
    ],
)
def test_a_wrong_option_writes_nothing(capsys: Capsys, tmp_path: Path, options: tuple[str, ...], says: str) -> None:
    answer = run(capsys, *NEW, *options)
    assert answer.code == 2
    assert says in answer.err
    assert "do:" in answer.err
    assert list(tmp_path.iterdir()) == []


def test_where_the_dump_goes_must_be_said(capsys: Capsys, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "where the dump goes is not said" in run(capsys, "dump-config", "--yes", "--device", "cpu").err
    monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", "/data")
    answer = run(capsys, "dump-config", "--yes", "--device", "cpu", "-o", "-")
    assert json.loads(answer.out)[COMMON]["path"] == ""


def test_a_file_for_msprobe(capsys: Capsys, tmp_path: Path) -> None:
    answer = run(
        capsys, "dump-config", "--yes", "--msprobe", "--iteration", "0|5-8", "--rank", "0,4-6", "--level", "mix"
    )
    assert answer.code == 0, answer.err
    content = json.loads((tmp_path / "config.json").read_text())
    assert (content["step"], content["rank"], content["level"]) == ([0, "5-8"], [0, "4-6"], "mix")
    assert "debugger.start(model=model)" in answer.out


# -- how large it will be ----------------------------------------------------------------------------


def test_the_size_of_a_model(capsys: Capsys) -> None:
    answer = run(capsys, *NEW, "--json", "-o", "-", *("--parameters", "7B", "--ranks", "8", "--steps", "5"))
    assert_described(answer.json, "dump-config")
    disk = answer.json["disk"]
    assert disk["total_bytes"] == 5 * 8 * disk["step_bytes"] == 5 * 8 * 16 * 4 * 7 * 10**9
    assert any("float32" in each for each in disk["assumes"])


def test_a_dump_that_is_there_tells_version_device_and_size(capsys: Capsys, dump: Path) -> None:
    answer = run(
        capsys, "dump-config", "--yes", "--like", dump, "--path", "/d", "--json", "-o", "-", "--iteration", "0-9"
    )
    assert answer.code == 0, answer.err
    files = [path.stat().st_size for path in dump.glob("rank_0/*/*/0/*.npy")]
    assert answer.json["disk"]["step_bytes"] == sum(files) > 0
    assert answer.json["disk"]["total_bytes"] == 10 * sum(files)
    assert str(dump) in answer.json["known_from"]


# -- questions ---------------------------------------------------------------------------------------


def asked(arguments: list[str], answers: str, cwd: Path) -> tuple[int, str, str]:
    """Runs the command with a terminal for stdin that a person has typed some lines into."""
    master, slave = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "tui_debugger", "dump-config", *arguments],
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=cwd,
    )
    os.close(slave)
    os.write(master, answers.encode())
    out, err = process.communicate(timeout=60)
    os.close(master)
    return process.returncode, out, err


def test_a_person_is_asked_for_what_no_option_says(tmp_path: Path) -> None:
    answers = "2.4\nnonsense\nasc\nO1\n\nMine\n0 | 5-8\nfull\nout\n"
    code, out, err = asked([], answers.replace("\n\n", "\n/data/dump\n"), tmp_path)
    assert code == 0, err
    assert "which version of MindSpore?" in err
    assert "'nonsense' is no answer; one of cpu, gpu, ascend" in err
    common = json.loads((tmp_path / "data_dump.json").read_text())[COMMON]
    assert (common["iteration"], common["saved_data"], common["input_output"]) == ("0|5-8", "full", 2)
    assert (common["path"], common["net_name"]) == ("/data/dump", "Mine")
    assert "MindSpore 2.4, Ascend, O1" in out


def test_an_empty_line_takes_the_default(tmp_path: Path) -> None:
    code, _, err = asked(["--device", "cpu", "--mindspore", "2.0"], "\n" * 4, tmp_path)
    assert code == 0, err
    common = json.loads((tmp_path / "data_dump.json").read_text())[COMMON]
    assert (common["path"], common["iteration"]) == (f"{tmp_path}/dump", "0")


def test_who_leaves_writes_nothing(tmp_path: Path) -> None:
    code, _, err = asked(["--device", "cpu"], "\x04", tmp_path)
    assert code == 130
    assert "nothing is written" in err
    assert list(tmp_path.iterdir()) == []
