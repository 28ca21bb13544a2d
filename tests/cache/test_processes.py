"""Several processes and threads with one store."""

from __future__ import annotations

import hashlib
import multiprocessing
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest

from tests.cache.stores import RECORDS, said, started, works
from tui_debugger.cache import DiskCache

WRITER = """
import hashlib
me, others = sys.argv[2], sys.argv[3].split(",")
def payload(who, turn):
    return hashlib.sha256(f"{who} {turn}".encode()).digest() * 3000
print("ready", flush=True)
sys.stdin.readline()
wrong = 0
for turn in range(30):
    store.put("records", f"{me} {turn}".encode(), payload(me, turn))
    for who in others:
        found = store.get("records", f"{who} {turn}".encode())
        wrong += found not in (None, payload(who, turn))
mine = {f"{me} {turn}".encode(): payload(me, turn) for turn in range(30)}
while missing := mine.keys() - store.get_many("records", mine).keys():  # dropped, or not answered
    store.put_many("records", {key: mine[key] for key in missing})
print(wrong)
"""


def _payload(who: str, turn: int) -> bytes:
    return hashlib.sha256(f"{who} {turn}".encode()).digest() * 3000


def test_processes_that_write_and_read_at_once(store: DiskCache) -> None:
    store.put_many("records", RECORDS)
    names = "abcd"
    processes = [started(store, WRITER, name, ",".join(names)) for name in names]
    for process in processes:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [said(process) for process in processes] == ["0"] * 4, "nobody ever read what nobody wrote"
    there = {f"{name} {turn}".encode(): _payload(name, turn) for name in names for turn in range(30)}
    assert store.get_many("records", there) == there, (
        "who tries again gets his turn, and nobody undoes what others wrote"
    )
    assert store.get_many("records", RECORDS) == RECORDS


def test_processes_that_start_with_nothing(store: DiskCache) -> None:
    names = "abcd"
    processes = [started(store, WRITER, name, ",".join(names)) for name in names]
    for process in processes:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    assert [said(process).split()[1] for process in processes] == ["0"] * 4, "after it said ready"
    assert works(store)
    assert len([path for path in store.path.iterdir() if path.name.endswith(".sqlite")]) == 1


@pytest.mark.parametrize("turns", [1, 3, 10])
def test_a_process_killed_while_it_writes_does_no_harm(store: DiskCache, turns: int) -> None:
    store.put_many("records", RECORDS)
    program = """
for turn in range(10**6):
    store.put_many("listing", {bytes([key]): bytes([turn % 256]) * 300_000 for key in range(8)})
    print(turn, flush=True)
"""
    process = started(store, program)
    assert process.stdout is not None
    for _ in range(turns):
        process.stdout.readline()
    process.kill()
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    found = store.get_many("listing", [bytes([key]) for key in range(8)])
    assert len(found) == 8
    assert len({payload[:1] for payload in found.values()}) == 1, "all at once or none"
    assert store.get_many("records", RECORDS) == RECORDS
    assert works(store)


def test_threads_share_a_store(store: DiskCache) -> None:
    start = threading.Barrier(8)

    def work(number: int) -> int:
        start.wait()
        wrong = 0
        for turn in range(20):
            name = str((number + turn) % 8)
            store.put("records", name.encode(), _payload(name, 0))
            wrong += store.get("records", name.encode()) != _payload(name, 0)
            if turn % 7 == 0:
                store.close()
        return wrong

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(work, range(8))) == 0
    assert store.trouble == ""


def test_two_stores_of_one_process(store: DiskCache) -> None:
    other = DiskCache(store.path)
    for number in range(20):
        first, second = (store, other) if number % 2 else (other, store)
        first.put("records", bytes([number]), bytes([number]) * 20_000)
        assert second.get("records", bytes([number])) == bytes([number]) * 20_000
    assert (store.trouble, other.trouble) == ("", "")


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
def test_a_forked_process_opens_it_anew(store: DiskCache) -> None:
    program = """
import threading
def answered(store):
    while not (found := store.get_many("records", RECORDS)):
        pass  # somebody writes, and waiting took too long
    return found
store.put_many("records", RECORDS)
busy = threading.Event()
def write():
    turn = 0
    while not busy.is_set():
        store.put("listing", b"thread", bytes(500_000))
thread = threading.Thread(target=write)
thread.start()
for number in range(10):
    child = os.fork()
    if child == 0:
        good = answered(store) == RECORDS
        store.put("listing", f"child {number}".encode(), b"1")
        store.close()
        os._exit(0 if good else 1)
    assert os.waitpid(child, 0)[1] == 0
busy.set()
thread.join()
print(store.get_many("records", RECORDS) == RECORDS, store.trouble == "")
"""
    assert said(started(store, program)) == "True True"
    assert store.get_many("records", RECORDS) == RECORDS


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="this system cannot fork")
def test_threads_that_fork_at_once_with_several_stores(store: DiskCache) -> None:
    program = """
import threading
def answered(store):
    while not (found := store.get_many("records", RECORDS)):
        pass  # somebody writes, and waiting took too long
    return found
stores = [DiskCache(store.path) for _ in range(4)]
for each in stores:
    each.put_many("records", RECORDS)
codes = []
def fork():
    for _ in range(10):
        child = os.fork()
        if child == 0:
            os._exit(0 if all(answered(each) == RECORDS for each in stores) else 1)
        codes.append(os.waitpid(child, 0)[1])
        stores[0].put("listing", b"x", bytes(50_000))
threads = [threading.Thread(target=fork) for _ in range(3)]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(len(codes), sum(codes))
"""
    assert said(started(store, program)) == "30 0"


def test_one_clears_while_another_writes(store: DiskCache) -> None:
    program = """
print("ready", flush=True)
for turn in range(200):
    store.put("listing", bytes([turn]), bytes([turn]) * 20_000)
    found = store.get("listing", bytes([turn]))
    assert found in (None, bytes([turn]) * 20_000)
print(store.trouble)
"""
    process = started(store, program)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    while process.poll() is None:
        assert store.clear().trouble == ""
    assert said(process) == ""
    assert works(store)
