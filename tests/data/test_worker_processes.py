import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from varlearn.data.worker_processes import peak_memory, results_in_order


def test_the_order_is_that_of_the_jobs() -> None:
    assert list(results_in_order(pow, [(k, 2) for k in range(20)], processes=2)) == [k * k for k in range(20)]
    assert list(results_in_order(pow, [], processes=2)) == []


def test_stopping_early_leaves_no_process() -> None:
    with closing(results_in_order(time.sleep, [(0,), (60,), (60,)], processes=2)) as results:
        next(results)
    assert multiprocessing.active_children() == []


def test_stopping_in_the_middle_of_a_large_result_leaves_no_thread() -> None:
    before = set(threading.enumerate())
    with closing(results_in_order(bytes, [(1,), (300_000_000,), (300_000_000,)], processes=2)) as results:
        next(results)
    assert set(threading.enumerate()) == before
    assert multiprocessing.active_children() == []


def test_an_error_comes_back_as_it_was() -> None:
    with pytest.raises(ZeroDivisionError) as raised:
        list(results_in_order(divmod, [(1, 1), (1, 0)], processes=2))
    assert "in a worker process:\nTraceback" in str(raised.value.__cause__)
    assert multiprocessing.active_children() == []


def test_a_result_that_cannot_be_sent_is_an_error() -> None:
    with pytest.raises(TypeError, match="cannot pickle"):
        list(results_in_order(memoryview, [(b"a",), (b"b",)], processes=2))


def test_a_killed_process_is_reported() -> None:
    with pytest.raises(ChildProcessError, match="ended from outside, perhaps for want of memory; use fewer processes"):
        list(results_in_order(os._exit, [(3,), (3,)], processes=2))


@pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="the state of a process is read from /proc")
def test_processes_end_with_their_parent() -> None:
    code = (
        "import time\nfrom varlearn.data.worker_processes import results_in_order\n"
        "if __name__ == '__main__':\n"
        "    jobs = [('import os; print(os.getpid(), flush=True)',)] * 2 + [('import time; time.sleep(60)',)] * 2\n"
        "    for _ in results_in_order(exec, jobs, 2): pass\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) as parent:
        assert parent.stdout is not None
        child = int(parent.stdout.readline())
        parent.send_signal(signal.SIGKILL)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()[0]
        except OSError:
            break
        if state == "Z":
            break
        time.sleep(0.1)
    else:
        pytest.fail(f"process {child} is still there")


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="the system does not say")
def test_the_peak_of_memory() -> None:
    before = peak_memory()
    block = bytearray(200_000_000)
    del block
    assert peak_memory() - before < 400_000_000
    assert peak_memory() > 200_000_000
