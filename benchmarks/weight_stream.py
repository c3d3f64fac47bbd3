"""The weight server to two rollouts at once, against bare ZeroMQ with the same frames and credit, and a file copy.

    python benchmarks/weight_stream.py [--weights 200000000]

One JSON object on stdout, in 10^9 bytes a second, both rollouts together. On a machine that is shared, the processor
seconds of server and readers tell more than the speed.
"""

import argparse
import json
import mmap
import multiprocessing
import os
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import zmq

from common import layout, weights
from common.chunks import CHUNK
from common.config import RunConfig
from common.history import History
from common.image import Image
from common.life import Process
from services.rollout.stream import CREDIT, Stream
from services.weights.config import WeightsConfig
from services.weights.service import serve

ROUNDS = 5


def stream(count: int) -> dict[str, float]:
    """Two rollouts at once; `bare` sends frames of the same size with the same credit and no server behind."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name_of_folder:
        folder = Path(name_of_folder)
        places = layout.build([("layer", "BF16", [count])])
        image = Image(places, lambda size: memoryview(bytearray(size)))
        image.units[:] = np.random.default_rng(0).integers(0, 65536, count, dtype=np.uint16)
        store = folder / "w" / "weights"
        weights.publish(store, 0, lambda path: path.write_bytes(image.memory) and None)
        gigabytes = len(image.tensors) / 1e9
        path = weights.version_folder(store, 0) / weights.TENSORS
        copy_s = min(seconds(lambda: shutil.copyfile(path, folder / "copy")) for _ in range(ROUNDS))
        found = {"gb": gigabytes, "file_copy_gb_per_s": gigabytes / copy_s}
        for name, start in (("bare", bare_server), ("server", real_server)):
            address = f"tcp://127.0.0.1:{free_port()}"
            process = multiprocessing.get_context("spawn").Process(
                target=start, args=(address, str(folder)), daemon=True
            )
            process.start()
            reader = bare_reader if name == "bare" else real_reader
            both(reader, address, len(image.tensors))  # warm
            before = processor_seconds(process.pid)
            fastest = min(both(reader, address, len(image.tensors)) for _ in range(ROUNDS))
            spent = processor_seconds(process.pid) - before
            found[f"{name}_processor_s_per_gb"] = spent / (2 * ROUNDS * gigabytes)
            found[f"{name}_gb_per_s"] = 2 * gigabytes / fastest
            process.kill()
            process.join()
        found["of_bare"] = found["server_gb_per_s"] / found["bare_gb_per_s"]
        return found


def seconds(call: Callable[[], object]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def processor_seconds(pid: int | None) -> float:
    """Of a server and of this process, whose readers they are."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") + time.process_time()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def both(reader: Callable[[str, int], None], address: str, num_bytes: int) -> float:
    """Seconds until two readers have everything."""
    threads = [threading.Thread(target=reader, args=(address, num_bytes)) for _ in range(2)]
    return seconds(lambda: [thread.start() for thread in threads] and [thread.join() for thread in threads])


def real_server(address: str, folder: str) -> None:
    run = RunConfig(name="w", model="none", folder=folder, weights=address)
    history = History(Path(folder) / "history", "weights-0")
    process = Process(role="weights", replica="0", run=run, config=WeightsConfig(), history=history)
    serve(process, threading.Event())


def real_reader(address: str, num_bytes: int) -> None:
    source = Stream(address)
    target = np.empty(num_bytes, np.uint8)
    at = 0
    for piece in source.data(source.manifest(0)):
        target[at : at + len(piece)] = piece
        at += len(piece)
    source.close()


def bare_server(address: str, folder: str) -> None:
    """The same bytes, each reader's in order, whatever it says."""
    path = weights.version_folder(Path(folder) / "w" / "weights", 0) / weights.TENSORS
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    sent: dict[bytes, int] = {}
    with zmq.Context() as context, context.socket(zmq.ROUTER) as router:
        router.bind(address)
        while True:
            peer, _ = router.recv_multipart()
            at = sent.get(peer, 0)
            sent[peer] = at + CHUNK
            router.send_multipart([peer, data[at : at + CHUNK]], copy=False)


def bare_reader(address: str, num_bytes: int) -> None:
    target = np.empty(num_bytes, np.uint8)
    with zmq.Context() as context, context.socket(zmq.DEALER) as dealer:
        dealer.connect(address)
        wanted = -(-num_bytes // CHUNK)
        for _ in range(min(CREDIT, wanted)):
            dealer.send(b"")
        for number in range(wanted):
            piece = dealer.recv(copy=False).buffer
            if number + CREDIT < wanted:
                dealer.send(b"")
            end = min(num_bytes, (number + 1) * CHUNK)
            target[number * CHUNK : end] = piece[: end - number * CHUNK]


def main() -> None:
    parser = argparse.ArgumentParser(description="Speed of the weight server.")
    parser.add_argument("--weights", type=int, default=200_000_000, help="bf16 values that are sent")
    print(json.dumps(stream(parser.parse_args().weights), indent=1))


if __name__ == "__main__":
    main()
