"""The directory that processes share, and the turn that it gives."""

import fcntl
import os
import signal
import subprocess
import sys

from univocal_app.processes.commons import PARENT, TURN, Commons

HOLDS = """
import fcntl, sys, time
lock = open(sys.argv[1], "r+")
fcntl.lockf(lock, fcntl.LOCK_EX)
print("holds", flush=True)
time.sleep(600)
"""


def is_free(directory):
    """Tell, in another process, whether it would be its turn."""
    code = "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    ended = subprocess.run([sys.executable, "-c", code, directory / "lock"], capture_output=True, check=False)
    return ended.returncode == 0


def test_one_process_leads(tmp_path):
    assert [Commons(tmp_path, name).leads for name in (PARENT, "1")] == [True, False]


def test_a_turn_is_one_process_s_alone(tmp_path):
    commons = Commons(tmp_path, "1")
    with commons.alone():
        assert not is_free(tmp_path)
    assert is_free(tmp_path)
    with commons.alone():  # by the same descriptor
        assert not is_free(tmp_path)


def test_the_turn_of_a_process_that_is_killed_passes_on(tmp_path):
    commons = Commons(tmp_path, "1")
    with commons.alone():
        pass
    other = subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path / "lock"], stdout=subprocess.PIPE)
    with other:
        assert other.stdout.readline() == b"holds\n"
        os.kill(other.pid, signal.SIGKILL)
        with commons.alone(60) as is_ours:  # it waits no longer than the kill takes
            assert is_ours
            assert other.wait() == -signal.SIGKILL


def test_a_turn_of_another_is_waited_for_milliseconds(tmp_path):
    commons = Commons(tmp_path, "1")
    with commons.alone() as is_ours:
        assert is_ours
    assert TURN <= 0.01
    with subprocess.Popen([sys.executable, "-c", HOLDS, tmp_path / "lock"], stdout=subprocess.PIPE) as other:
        assert other.stdout.readline() == b"holds\n"
        with commons.alone() as is_ours:
            assert not is_ours
        assert not is_free(tmp_path)
        other.kill()


def test_others_of_the_system_may_not_read_it(tmp_path):
    commons = Commons(tmp_path, "1")
    with commons.alone():
        assert (tmp_path / "lock").stat().st_mode & 0o777 == 0o600
    assert fcntl.fcntl(commons._locks.file, fcntl.F_GETFD) & fcntl.FD_CLOEXEC
