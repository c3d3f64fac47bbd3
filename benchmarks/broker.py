"""How fast the broker hands items over, against a bare ZeroMQ stream of the same frames and against memcpy.

    dapo bench broker [--seconds 3] [--repeat 3] [--json]

A hand-over is the whole life of an item: given and on disk, delivered under a lease, settled and that on disk too. A
real broker process over tcp; givers and takers are processes with the real client, many items under way at a time, as
the services have. Beside it, in turn with it, the same frames go from one process to another over a bare PUSH/PULL
pair, and are copied in memory.

    SIZE               hand-overs a second and MB/s, by size of the payload; `of_bare` is the share of the bare stream
    durability_full    the same at 64 kB, with an fsync in every commit
    clients_N          hand-overs a second at 64 kB with N clients, half of them givers
    latency            seconds from `give` to the item's arrival at a taker, at 100 items a second

Medians over the repeats. The machine's other load counts against all of them: run it on a quiet one.
"""

import argparse
import asyncio
import ctypes
import json
import multiprocessing
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any

import tomli_w
import zmq

from common.client import Item, QueueClient, connect

SIZES = {"1kB": 1 << 10, "64kB": 1 << 16, "1MB": 1 << 20}
CLIENTS = (2, 8, 32, 64)
UNDER_WAY_BYTES = 32 << 20
"""Payload that all givers together have under way, at most."""
MOST_UNDER_WAY = 128
SETTLE_AT_ONCE = 16
LATENCY_RATE = 100
SPAWN = multiprocessing.get_context("spawn")


def main() -> None:
    parser = argparse.ArgumentParser(description="Time the broker.")
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    arguments = parser.parse_args()
    result = measure(arguments.seconds, arguments.repeat)
    lines = [f"{name:>16}  {value}" for name, value in result.items()]
    print(json.dumps(result) if arguments.json else "\n".join(lines))


def measure(seconds: float, repeat: int) -> dict[str, Any]:
    """All figures; the broker and the bare stream take turns."""
    result: dict[str, Any] = {"seconds": seconds, "repeat": repeat, "cores": len(os.sched_getaffinity(0))}
    for name, size in SIZES.items():
        pairs = [(handovers(size, seconds), bare(size, seconds)) for _ in range(repeat)]
        ours, stream = (statistics.median(column) for column in zip(*pairs, strict=True))
        result[name] = {
            "per_second": ours, "megabytes_per_second": ours * size / 1e6, "bare_per_second": stream,
            "of_bare": ours / stream, "memcpy_megabytes_per_second": memcpy(size, seconds / 4),
        }  # fmt: skip
        print(f"[broker] {name}: {result[name]}", file=sys.stderr)
    size = SIZES["64kB"]
    full = statistics.median(handovers(size, seconds, durability="full") for _ in range(repeat))
    result["durability_full"] = {"per_second": full, "of_process": full / result["64kB"]["per_second"]}
    for number in CLIENTS:
        rate = statistics.median(handovers(size, seconds, clients=number) for _ in range(repeat))
        result[f"clients_{number}"] = {"per_second": rate}
    waits = sorted(wait for _ in range(repeat) for wait in latencies(size, seconds))
    result["latency"] = {"p50_s": waits[len(waits) // 2], "p99_s": waits[len(waits) * 99 // 100]}
    return result


@contextmanager
def broker(durability: str = "process") -> Iterator[str]:
    """The address of a broker process, for the length of the block."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"tcp://127.0.0.1:{server.getsockname()[1]}"
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "config.toml"
        run = {"name": "bench", "model": "none", "folder": folder, "broker": address}
        path.write_text(tomli_w.dumps({"run": run, "broker": {"metrics_port": -1, "durability": durability}}))
        command = [sys.executable, "-m", "services.broker", str(path)]
        process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
        try:
            yield address
        finally:
            process.terminate()
            process.wait(20)


def handovers(size: int, seconds: float, *, durability: str = "process", clients: int = 4) -> float:
    """Items a second that were given, delivered and settled, after a start of a quarter of the time."""
    pairs = clients // 2
    under_way = max(2, min(MOST_UNDER_WAY, UNDER_WAY_BYTES // size) // pairs)
    done = SPAWN.Array(ctypes.c_uint64, pairs, lock=False)
    stop = SPAWN.Event()
    with broker(durability) as address:
        workers = [
            SPAWN.Process(target=target, args=arguments, daemon=True)
            for place in range(pairs)
            for target, arguments in (
                (giver, (address, place, size, under_way, stop)),
                (taker, (address, place, under_way, done, stop)),
            )
        ]
        for worker in workers:
            worker.start()
        while not all(done):
            time.sleep(0.01)
        time.sleep(seconds / 4)
        before, start = sum(done), time.perf_counter()
        time.sleep(seconds)
        rate = (sum(done) - before) / (time.perf_counter() - start)
        stop.set()
        for worker in workers:
            worker.join()
    return rate


def giver(address: str, place: int, size: int, under_way: int, stop: Event) -> None:
    """A process that keeps so many gives under way."""
    payload = os.urandom(size)

    async def give(client: QueueClient, lane: int) -> None:
        number = 0
        while not stop.is_set():
            await client.give(Item(f"q{place}", f"{lane}/{number}", [payload]))
            number += 1

    async def run() -> None:
        async with connect(address, f"giver-{place}") as client, asyncio.TaskGroup() as tasks:
            for lane in range(under_way):
                tasks.create_task(give(client, lane))

    asyncio.run(run())


def taker(address: str, place: int, under_way: int, done: Any, stop: Event) -> None:
    """A process that takes and settles, counting in its place of `done`."""

    async def run() -> None:
        async with connect(address, f"taker-{place}") as client:
            inbox, leases = client.take(f"q{place}", window=2 * under_way + SETTLE_AT_ONCE), []
            at_once = min(SETTLE_AT_ONCE, under_way)
            async with asyncio.TaskGroup() as tasks:
                while not stop.is_set():
                    try:
                        async with asyncio.timeout(0.2):
                            leases.append((await inbox.get()).lease)
                    except TimeoutError:
                        continue
                    if len(leases) >= at_once:
                        tasks.create_task(settle(client, leases))
                        leases = []

    async def settle(client: QueueClient, leases: list[int]) -> None:
        await client.settle(leases)
        done[place] += len(leases)

    asyncio.run(run())


def latencies(size: int, seconds: float) -> list[float]:
    """Seconds from `give` to arrival, at a low rate."""

    async def run(address: str) -> list[float]:
        payload, begun, found = os.urandom(size), {}, []
        async with connect(address, "giver-0") as client, connect(address, "taker-0") as other:
            inbox = other.take("q", window=64)

            async def take() -> None:
                while True:
                    item = await inbox.get()
                    found.append(time.perf_counter() - begun[item.id])
                    await other.settle([item.lease])

            taking = asyncio.create_task(take())
            for number in range(int(seconds * LATENCY_RATE)):
                begun[str(number)] = time.perf_counter()
                await client.give(Item("q", str(number), [payload]))
                await asyncio.sleep(1 / LATENCY_RATE)
            await asyncio.sleep(0.5)
            taking.cancel()
            await asyncio.gather(taking, return_exceptions=True)
        return found

    with broker() as address:
        return asyncio.run(run(address))


def bare(size: int, seconds: float) -> float:
    """Messages a second from a PUSH process to a PULL process, of a header frame and the payload."""
    ready, stop = SPAWN.Event(), SPAWN.Event()
    with zmq.Context() as context, context.socket(zmq.PULL) as pull:
        pull.rcvhwm = max(2, UNDER_WAY_BYTES // size)
        port = pull.bind_to_random_port("tcp://127.0.0.1")
        process = SPAWN.Process(target=push, args=(f"tcp://127.0.0.1:{port}", size, ready, stop), daemon=True)
        process.start()
        ready.wait()
        pull.recv_multipart(copy=False)
        start, count = time.perf_counter(), 0
        while time.perf_counter() - start < seconds:
            pull.recv_multipart(copy=False)
            count += 1
        stop.set()
        rate = count / (time.perf_counter() - start)
        while pull.poll(200):
            pull.recv_multipart(copy=False)
        process.join()
    return rate


def push(address: str, size: int, ready: Event, stop: Event) -> None:
    """Send as fast as the other side takes."""
    payload = os.urandom(size)
    with zmq.Context() as context, context.socket(zmq.PUSH) as socket:
        socket.sndhwm = max(2, UNDER_WAY_BYTES // size)
        socket.connect(address)
        ready.set()
        while not stop.is_set():
            socket.send_multipart([b"h" * 64, payload], copy=False)


def memcpy(size: int, seconds: float) -> float:
    """MB/s of copying such a payload in memory."""
    source, target = os.urandom(size), bytearray(size)
    start, count = time.perf_counter(), 0
    while time.perf_counter() - start < seconds:
        target[:] = source
        count += 1
    return count * size / (time.perf_counter() - start) / 1e6


if __name__ == "__main__":
    main()
