"""Files that lie beside dumps and hold no tensor of them: what a check passes over without a word of doubt."""

from __future__ import annotations

import gzip
import io
import json
import os
import pickle
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import Final

import numpy as np

from tests.trees.layouts import array, save
from tests.trees.leaves import BAD

Writer = Callable[[Path], object]


def put(path: Path, content: str | bytes) -> None:
    """Writes a file, its directory included; one that is there stays."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        path.write_bytes(content.encode() if isinstance(content, str) else content)


def put_all(root: Path, contents: Mapping[str, str | bytes]) -> None:
    """Writes files by their paths below a directory."""
    for name, content in contents.items():
        put(root / name, content)


def readme(root: Path) -> None:
    put_all(root, {"README.md": "# Run 7\n\nLoss went to nan.\n", "LICENSE": "Apache", "notes.txt": "nan, inf\n"})


def git(root: Path) -> None:
    """A repository: objects are packed, and so look like nothing at all."""
    blob = zlib.compress(b"blob 24\0" + BAD.tobytes())
    put_all(
        root / ".git",
        {
            "HEAD": "ref: refs/heads/main\n",
            "config": "[core]\n\tbare = false\n",
            "objects/3f/1d5c8e0b7a4f26d9c1b2a3948576f0e1d2c3b4": blob,
            "objects/pack/pack-0f3a.pack": b"PACK" + struct.pack(">II", 2, 1) + blob,
            "objects/pack/pack-0f3a.idx": b"\xfftOc" + struct.pack(">I", 2) + bytes(1024),
            "index": b"DIRC" + struct.pack(">II", 2, 0),
            "refs/heads/main": "3f1d5c8e0b7a4f26d9c1b2a3948576f0e1d2c3b4\n",
        },
    )
    put(root / ".gitignore", "*.pt\n")
    put(root / ".gitattributes", "*.safetensors filter=lfs diff=lfs merge=lfs -text\n")


def settings(root: Path) -> None:
    put_all(
        root,
        {
            "generation_config.json": json.dumps({"max_length": 20, "top_p": 0.9}),
            "training.yaml": "lr: 1.0e-3\nmax_grad_norm: .inf\n",
            "setup.toml": "[run]\nseed = 7\n",
            "ds_config.json": json.dumps({"zero_optimization": {"stage": 2}}),
            ".hydra/overrides.yaml": "- lr=0.001\n",
        },
    )


def tokenizer(root: Path) -> None:
    """Those of BPE, of WordPiece and of SentencePiece, whose model is a message of protobuf."""
    pieces = b"".join(
        b"\x0a" + bytes([len(word) + 7, 0x0A, len(word)]) + word + b"\x15" + struct.pack("<f", -float(at))
        for at, word in enumerate((b"<unk>", b"<s>", b"the", b"nan"))
    )
    put_all(
        root,
        {
            "tokenizer.json": json.dumps({"version": "1.0", "model": {"type": "BPE", "vocab": {"a": 0}}}),
            "tokenizer_config.json": json.dumps({"model_max_length": 1_000_000_000_000_000_019_884_624_838_656}),
            "special_tokens_map.json": json.dumps({"unk_token": "<unk>"}),
            "vocab.txt": "[PAD]\n[UNK]\nthe\n",
            "merges.txt": "#version: 0.2\nt h\nth e\n",
            "tokenizer.model": pieces,
            "source.spm": pieces,
        },
    )


def events(root: Path) -> None:
    """Event files of TensorBoard: records with their lengths and checksums."""

    def record(data: bytes) -> bytes:
        return struct.pack("<QI", len(data), 1) + data + struct.pack("<I", 2)

    scalar = b"\x09\x00\x00\x00\x00\x00\x00\xf0\x3f\x2a\x0d\x0a\x0b\x0a\x04loss\x15" + struct.pack("<f", 0.5)
    content = record(b"\x09\x00\x00\x00\x60\xb0\xd8\xd9\x41\x1a\x0dbrain.Event:2") + record(scalar)
    put(root / "events.out.tfevents.1700000000.host.4711.0", content)
    put(root / "runs" / "Nov22_11-36-49_host" / "events.out.tfevents.1700000001.host.4711.1", content)


def pictures(root: Path) -> None:
    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    png = b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 2, 1, 8, 0, 0, 0, 0))
    png += chunk(b"IDAT", zlib.compress(b"\0\x7f\xff")) + chunk(b"IEND", b"")
    jpeg = b"\xff\xd8\xff\xe0\x00\x10JFIF\x00\x01\x01\x00\x00\x01\x00\x01\x00\x00" + bytes(40) + b"\xff\xd9"
    put_all(
        root, {"loss.png": png, "samples/00001.jpg": jpeg, "curve.svg": "<svg xmlns='http://www.w3.org/2000/svg'/>"}
    )
    put(root / "report.pdf", b"%PDF-1.7\n%\xe2\xe3\xcf\xd3\n1 0 obj\n<<>>\nendobj\n%%EOF\n")
    put(root / "samples" / "sample.wav", b"RIFF" + struct.pack("<I", 36) + b"WAVEfmt " + bytes(28))


def wandb(root: Path) -> None:
    run = root / "wandb" / "run-20261122_030546-ab12cd34"
    record = struct.pack("<IHB", 0, 12, 1) + b"\x0a\x0a\x12\x08ab12cd34"
    put(run / "run-ab12cd34.wandb", b":W&B" + bytes(3) + record)
    put(run / "files" / "wandb-metadata.json", json.dumps({"gpu": "H100", "startedAt": "2026-11-22"}))
    put(run / "files" / "wandb-summary.json", '{"loss": 0.5}')
    put(run / "files" / "output.log", "step 1 loss 0.5\n")
    put(run / "logs" / "debug.log", "started\n")
    link(root / "wandb" / "latest-run", Path(run.name))


def logs(root: Path) -> None:
    put_all(
        root,
        {
            "train.log": "step 1: loss 2.31\nstep 2: loss 2.20\n",
            "nohup.out": "\x1b[32mepoch 1\x1b[0m\n",
            "slurm-4711.out": "srun: job 4711 queued\n",
            "train.log.1.gz": gzip.compress(b"step 0: loss 2.5\n" * 50, mtime=0),
            "metrics.csv": "step,loss\n1,2.31\n2,2.20\n",
            "metrics.jsonl": '{"step": 1, "loss": 2.31}\n',
        },
    )


def scripts(root: Path) -> None:
    source = io.BytesIO()
    with zipfile.ZipFile(source, "w") as file:
        file.writestr("train.py", "import torch\n")
    put_all(
        root,
        {
            "train.py": "import torch\n",
            "launch.sh": "#!/bin/sh\ntorchrun train.py\n",
            "look.ipynb": json.dumps({"cells": [], "nbformat": 4, "metadata": {}, "nbformat_minor": 5}),
            "code.zip": source.getvalue(),
            "libfused.so": b"\x7fELF\x02\x01\x01" + bytes(57),
            "__pycache__/train.cpython-311.pyc": b"\xa7\r\r\n" + bytes(12) + b"\xe3" + bytes(20),
        },
    )


def environment(root: Path) -> None:
    """An environment of Python, in whose packages are arrays for their tests."""
    packages = root / ".venv" / "lib" / "python3.11" / "site-packages"
    put(root / ".venv" / "pyvenv.cfg", "home = /usr/bin\nversion = 3.11.9\n")
    array(packages / "numpy" / "lib" / "tests" / "data" / "py3-objarr.npy", BAD)
    np.savez(packages / "numpy" / "lib" / "tests" / "data" / "win64python2.npz", x=BAD)
    save(packages / "timm" / "tests" / "weights.pt", {"w": 1.0})
    put(packages / "numpy" / "__init__.py", "")


def caches(root: Path) -> None:
    """Directories that say of themselves that they are caches."""
    for name in (".mypy_cache", ".pytest_cache", "dataset_cache"):
        put(root / name / "CACHEDIR.TAG", "Signature: 8a477f597d28d172789f06886806bc55\n")
        put(root / name / "v" / "nodeids", "[]")
    array(root / "dataset_cache" / "v" / "shuffle.npy", BAD)


def tables(root: Path) -> None:
    """Data that no format of tensors holds."""
    root.mkdir(parents=True, exist_ok=True)
    if not (root / "study.db").exists():
        with closing(sqlite3.connect(root / "study.db")) as database:
            database.execute("CREATE TABLE trials (value REAL)")
            database.commit()
    put(root / "train.parquet", b"PAR1" + bytes(range(200)) + struct.pack("<I", 40) + b"PAR1")
    put(root / "data-00000-of-00001.arrow", b"\xff\xff\xff\xff" + struct.pack("<I", 64) + bytes(range(64)))


def pickles(root: Path) -> None:
    """Pickles without a tensor."""
    put(root / "vocab.pkl", pickle.dumps({"a": 0, "b": 1}, 4))
    put(root / "args.pickle", pickle.dumps({"lr": 1e-3, "names": ["x", ("y", 2)], "none": None, "raw": b"x"}, 2))


def mlflow(root: Path) -> None:
    run = root / "mlruns" / "0" / "8f14e45f"
    put_all(run, {"meta.yaml": "run_name: x\n", "metrics/loss": "1700000000 0.5 1\n", "params/lr": "0.001"})


def leftovers(root: Path) -> None:
    """Empty files and directories, locks, and what desktops and file systems leave."""
    put_all(root, {".DS_Store": b"\0\0\0\x01Bud1" + bytes(60), "run.lock": "", "empty": "", "pid": "4711\n"})
    put(root / ".cache" / "huggingface" / "download" / "model.safetensors.lock", "")
    put(root / ".cache" / "huggingface" / "download" / "config.json.metadata", "8f14e45f\n1700000000.0\n")
    (root / "tmp").mkdir(exist_ok=True)


FOREIGN: Final[Mapping[str, Writer]] = {
    "readme": readme,
    "git": git,
    "settings": settings,
    "tokenizer": tokenizer,
    "events": events,
    "pictures": pictures,
    "wandb": wandb,
    "logs": logs,
    "scripts": scripts,
    "environment": environment,
    "caches": caches,
    "tables": tables,
    "pickles": pickles,
    "mlflow": mlflow,
    "leftovers": leftovers,
}
"""What writes files of a kind into a directory."""


def link(path: Path, target: Path) -> None:
    """Makes a symbolic link, unless something is there."""
    if not os.path.lexists(path):
        path.symlink_to(target)
