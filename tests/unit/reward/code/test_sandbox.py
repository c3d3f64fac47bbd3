"""What a program under test can and cannot do, whichever layers the kernel has."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from services.reward.code.sandbox import Ended, Program, Sandbox, SandboxError
from services.reward.limits import Limits

LIMITS = Limits(case_s=1.0, files_mib=4, output_mib=1)
WITHOUT = {"as_here": (), "no_bubblewrap": ("bubblewrap",), "no_landlock": ("bubblewrap", "landlock")}


@pytest.fixture(params=WITHOUT, scope="module")
def sandbox(request: pytest.FixtureRequest) -> Iterator[Sandbox]:
    opened = Sandbox(leave_out=WITHOUT[request.param])
    if "seccomp" not in opened.layers:
        pytest.skip("libseccomp is not installed")
    yield opened
    opened.close()


def run(sandbox: Sandbox, source: str, limits: Limits = LIMITS) -> Ended:
    return sandbox.run(Program(source=source, function=""), stdin="", arguments=[], limits=limits)


ESCAPES = {
    "a process": "import os; os.fork()",
    "a shell": "import subprocess; subprocess.run(['true'])",
    "a session": "import os; os.setsid()",
    "a signal to the launcher": "import os, signal; os.kill(os.getppid(), signal.SIGKILL)",
    "a connection": "import socket; socket.create_connection(('127.0.0.1', 1))",
    "a datagram": "import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 9))",
    "a server": "import socket; socket.create_server(('127.0.0.1', 0))",
    "shared memory": "from multiprocessing.shared_memory import SharedMemory; SharedMemory(create=True, size=10)",
    "higher limits": "import resource; resource.setrlimit(resource.RLIMIT_CPU, (100, 100))",
    "a file elsewhere": "open('/var/tmp/dapo-escape', 'w').write('x')",
    "a file in the shared memory": "open('/dev/shm/dapo-escape', 'w').write('x')",
    "a system call by its number": "import ctypes; assert ctypes.CDLL(None).syscall(57) == -1; raise OSError",
}


@pytest.mark.parametrize("what", ESCAPES)
def test_a_program_cannot_have(sandbox: Sandbox, what: str) -> None:
    ended = run(sandbox, ESCAPES[what])
    assert (ended.cause, ended.confined) == ("exit", True)
    assert ended.exit_status
    assert "Error" in ended.errors.decode().splitlines()[-1]
    assert not Path("/var/tmp/dapo-escape").exists()
    assert not Path("/dev/shm/dapo-escape").exists()


def test_the_launcher_s_memory_and_environment_cannot_be_read(sandbox: Sandbox) -> None:
    for file in ("mem", "environ", "maps"):
        ended = run(sandbox, f"import os; print(len(open(f'/proc/{{os.getppid()}}/{file}', 'rb').read(1)))")
        if "landlock" in sandbox.layers or file == "mem":
            assert ended.exit_status, file


def test_files_that_are_not_the_system_s_cannot_be_read(sandbox: Sandbox, tmp_path: Path) -> None:
    if not {"landlock", "bubblewrap"} & set(sandbox.layers):
        pytest.skip("only Landlock or bubblewrap hide files")
    secret = tmp_path / "expected.jsonl"
    secret.write_text("42")
    ended = run(sandbox, f"print(open({str(secret)!r}).read())")
    assert ended.exit_status
    assert b"42" not in ended.printed


def test_a_program_may_use_threads_its_folder_and_the_usual_libraries(sandbox: Sandbox) -> None:
    source = """
import sys, threading, tempfile, random, numpy, collections, dataclasses, asyncio
sys.setrecursionlimit(1 << 20)
threading.stack_size(64 << 20)
def deep(n): return 0 if n == 0 else 1 + deep(n - 1)
def main(): print(deep(20_000), int(numpy.arange(4).sum()))
thread = threading.Thread(target=main)
thread.start()
thread.join()
async def wait(): await asyncio.sleep(0.01)
asyncio.run(wait())
@dataclasses.dataclass
class Point: x: int
print(Point(1), open('/dev/stdin').read() == '', open(0).read() == '')
"""
    ended = run(sandbox, source, Limits(case_s=10))
    assert ended.errors == b""
    assert ended.printed == b"20000 6\nPoint(x=1) True True\n"
    if "landlock" in sandbox.layers:
        assert run(sandbox, "open('a', 'w').write('x'); print(open('a').read())").printed == b"x\n"


def test_too_much_of_anything_ends_it(sandbox: Sandbox) -> None:
    assert run(sandbox, "while True: pass").cause == "timeout"
    assert run(sandbox, "import time; time.sleep(99)").cause == "timeout"
    assert run(sandbox, "while True: print('x' * 1000)").cause == "output"
    assert b"MemoryError" in run(sandbox, "x = bytearray(2 << 30)").errors
    assert run(sandbox, "import sys\nwhile True: sys.stderr.write('x' * 1000)").cause == "timeout"
    if "landlock" in sandbox.layers:
        source = "n = 0\nwhile True:\n    n += 1\n    open(str(n), 'wb').write(bytes(1 << 20))"
        assert run(sandbox, source).cause in {"files", "exit"}


def test_what_closes_its_output_or_ignores_signals_is_stopped_too(sandbox: Sandbox) -> None:
    assert run(sandbox, "import os\nos.closerange(0, 99)\nwhile True: pass").cause == "timeout"
    ignoring = "import signal\nfor n in set(signal.Signals) - {9, 19}: signal.signal(n, signal.SIG_IGN)\n"
    assert run(sandbox, ignoring + "while True: pass").cause == "timeout"
    source = "import threading, time\nthreading.Thread(target=lambda: time.sleep(99)).start()\nprint('ok')"
    assert run(sandbox, source).cause == "timeout"


def test_no_process_and_no_folder_is_left(sandbox: Sandbox) -> None:
    before, others = len(list(Path(sandbox._home.name).iterdir())), descendants(os.getpid())
    for source in ("while True: pass", "import os\nos._exit(3)", "1/0", "print(1)"):
        run(sandbox, source)
    assert len(list(Path(sandbox._home.name).iterdir())) == before == 0
    assert descendants(os.getpid()) <= others | descendants_of_launchers(os.getpid())


def test_outputs_do_not_stay_in_memory(sandbox: Sandbox) -> None:
    run(sandbox, "while True: print('x' * 1000)")
    before = resident()
    for _ in range(5):
        run(sandbox, "while True: print('x' * 1000)")
    assert resident() - before < 64 << 20


def test_a_launcher_that_is_killed_is_a_failure_of_the_sandbox() -> None:
    sandbox = Sandbox()
    sandbox._process.kill()
    with pytest.raises(SandboxError):
        run(sandbox, "print(1)")
    sandbox.close()


def test_a_killed_worker_leaves_no_process_and_its_folder_is_swept(tmp_path: Path) -> None:
    code = """
from services.reward.code.sandbox import Program, Sandbox
from services.reward.limits import Limits
sandbox = Sandbox()
print(sandbox._home.name, flush=True)
program = Program(source="import time; time.sleep(60)", function="")
sandbox.run(program, stdin="", arguments=[], limits=Limits(case_s=60))
"""
    worker = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    assert worker.stdout
    home = Path(worker.stdout.readline().strip())
    deadline = time.monotonic() + 20
    while len(descendants(worker.pid)) < 2 and time.monotonic() < deadline:
        time.sleep(0.05)
    left = descendants(worker.pid)
    assert len(left) >= 2
    worker.kill()
    worker.wait()
    worker.stdout.close()
    while any(map(alive, left)) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(map(alive, left))
    assert home.exists()
    Sandbox().close()
    assert not home.exists()


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> set[int]:
    """All processes below one."""
    children = {
        int(child) for task in Path(f"/proc/{pid}/task").glob("*/children") for child in task.read_text().split()
    }
    return children.union(*map(descendants, children))


def descendants_of_launchers(pid: int) -> set[int]:
    """Those whose command line is a launcher's, or bubblewrap's: they stay from one program to the next."""
    return {child for child in descendants(pid) if b"box.launcher" in Path(f"/proc/{child}/cmdline").read_bytes()}
