import multiprocessing
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from common.errors import UserError
from common.gpus import Gpu, parse, visible_gpus
from services.rollout.claims import take

GPUS = [Gpu(index=index, uuid=f"GPU-{index}") for index in range(3)]


@contextmanager
def other_replica(folder: Path, number: int) -> Iterator[subprocess.Popen[str]]:
    """A process that takes that many, says so and lives until it is killed."""
    code = (
        "import sys, time; from pathlib import Path\n"
        "from common.gpus import Gpu; from services.rollout.claims import take\n"
        "gpus = [Gpu(index=i, uuid=f'GPU-{i}') for i in range(3)]\n"
        "print(take(Path(sys.argv[1]), gpus, int(sys.argv[2])).visible_devices, flush=True); time.sleep(60)"
    )
    process = subprocess.Popen([sys.executable, "-c", code, folder, str(number)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


def test_replicas_take_different_gpus_until_there_are_none(tmp_path: Path) -> None:
    found = [take(tmp_path, GPUS, 1) for _ in range(4)]
    assert [claim and claim.visible_devices for claim in found] == ["0", "1", "2", None]
    for claim in found:
        if claim:
            claim.release()


def test_a_replica_that_needs_several_takes_all_or_none(tmp_path: Path) -> None:
    first = take(tmp_path, GPUS, 2)
    assert first is not None
    assert first.visible_devices == "0,1"
    assert take(tmp_path, GPUS, 2) is None  # one is free: it must not keep that one
    second = take(tmp_path, GPUS, 1)
    assert second is not None
    assert second.visible_devices == "2"
    first.release()
    second.release()


def test_the_gpu_of_a_killed_process_is_free_at_once(tmp_path: Path) -> None:
    with other_replica(tmp_path, 1) as other:
        mine = take(tmp_path, GPUS, 2)
        assert mine is not None
        assert mine.visible_devices == "1,2"
        mine.release()
        assert take(tmp_path, GPUS, 3) is None
        os.kill(other.pid, signal.SIGKILL)
        other.wait()
        all_three = take(tmp_path, GPUS, 3)
        assert all_three is not None
        all_three.release()


def _take_and_hold(folder: str, ready: "multiprocessing.Queue[str]") -> None:
    claim = take(Path(folder), GPUS, 1)
    ready.put(claim.visible_devices if claim else "none")
    signal.pause()


def test_replicas_that_start_at_the_same_time_never_share_a_gpu(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    ready: multiprocessing.Queue[str] = context.Queue()
    replicas = [context.Process(target=_take_and_hold, args=(str(tmp_path), ready), daemon=True) for _ in range(4)]
    for replica in replicas:
        replica.start()
    found = sorted(ready.get(timeout=60) for _ in replicas)
    for replica in replicas:
        replica.kill()
        replica.join()
    assert found == ["0", "1", "2", "none"]


def test_more_gpus_than_there_are_is_the_users_mistake(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"needs 4 GPUs and sees 3: lower \[rollout\] tensor_parallel_size"):
        take(tmp_path, GPUS, 4)


def test_the_drivers_list_is_read_without_partitions() -> None:
    listing = (
        "GPU 0: NVIDIA H100 80GB HBM3 (UUID: GPU-8a6e1c2f-0d0b-4b39-9f2e-1c5b8a4d6e70)\n"
        "  MIG 1g.10gb     Device  0: (UUID: MIG-c7384736-a75d-5afc-978f-d2f1294409fd)\n"
        "GPU 1: NVIDIA H100 80GB HBM3 (UUID: GPU-22222222-0d0b-4b39-9f2e-1c5b8a4d6e70)\n"
    )
    assert [(gpu.index, gpu.uuid[:12]) for gpu in parse(listing)] == [(0, "GPU-8a6e1c2f"), (1, "GPU-22222222")]


async def test_cuda_sees_only_what_was_claimed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from services.rollout.__main__ import claim_gpus

    (tmp_path / "bin").mkdir()
    driver = tmp_path / "bin" / "nvidia-smi"
    driver.write_text("#!/bin/sh\necho 'GPU 0: X (UUID: GPU-a)'; echo 'GPU 1: X (UUID: GPU-b)'\n")
    driver.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}:/usr/bin:/bin")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("CUDA_DEVICE_ORDER", "FASTEST_FIRST")
    first = take(tmp_path / "claims", visible_gpus(), 1)
    assert first is not None
    await claim_gpus(tmp_path / "claims", 1)
    assert (os.environ["CUDA_VISIBLE_DEVICES"], os.environ["CUDA_DEVICE_ORDER"]) == ("1", "PCI_BUS_ID")
    first.release()
