"""compat.py: what the tests of real programs share.

A test is a function `main(work)` handed to `run_test`, which gives it an empty directory, bounds
its time, ends what it left running, and turns its outcome into the exit status that ctest reads:
0 passed, 1 failed, 77 skipped for want of a program.

The library under test is named by HAK_TEST_LIB. Every test proves that its programs were served by
it (tools/proof.py). With --no-proof a test runs without that proof, with any library or with none:
for writing tests, not for passing them.
"""

import contextlib
import ctypes
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", "tools"))
import proof  # noqa: E402

PROVE = "--no-proof" not in sys.argv[1:]
LIB = os.path.realpath(os.environ["HAK_TEST_LIB"]) if os.environ.get("HAK_TEST_LIB") else None
NOT_INHERITED = frozenset(
    """HAK_TEST_LIB HAK_TEST_BUILD HAK_TEST_SOURCE HAK_TEST_PYTHON LD_PRELOAD LC_ALL LANGUAGE PYTHONPATH
    PYTHONMALLOC""".split()
)
PASSED, FAILED, SKIPPED = 0, 1, 77
SCRIPT_SECONDS = 150  # a script takes less than 60 s alone; ctest may run several side by side


class Failed(Exception):
    pass


class Skipped(Exception):
    pass


def check(condition, message):
    if not condition:
        raise Failed(message)


def same(what, found, expected):
    if found != expected:
        raise Failed(f"{what}: {short(found)} instead of {short(expected)}")


def short(value, limit=400):
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= limit else text[:limit] + "... (%s more)" % (len(text) - limit)


def say(message):
    print(message, flush=True)


def need(program, package, folders=()):
    """The path of a program, or the test is skipped, naming the package that has it."""
    path = shutil.which(program)
    for folder in folders:
        if path is None:
            path = shutil.which(program, path=folder)
    if path is None:
        raise Skipped(f"{program} is not installed (package {package})")
    return path


# ---- Running programs ----------------------------------------------------------------------------


def environment(preload=True, lib=None, **extra):
    """The environment of a program under test, or of its control without the library.

    Variables that tell a test where things are are no options of the library and go; the other
    HAKMEM_* pass through, so that the tests can be run in another mode.
    """
    env = {name: value for name, value in os.environ.items() if name not in NOT_INHERITED}
    env["LC_ALL"] = "C.UTF-8"
    if preload and LIB:
        env["LD_PRELOAD"] = lib or LIB
    env.update(extra)
    return env


class Result:
    def __init__(self, argv, status, out, err, seconds):
        self.argv, self.status, self.out, self.err = argv, status, out, err
        self.seconds = seconds

    def ok(self):
        """This result, after making sure that the program succeeded."""
        if self.status != 0:
            how = "signal %s" % -self.status if self.status < 0 else f"status {self.status}"
            tail = (self.err or self.out).decode("utf-8", "replace")[-2000:]
            raise Failed("{} ended with {}\n{}".format(" ".join(self.argv)[:300], how, tail))
        return self


def run(argv, timeout=60, preload=True, env=None, data=b"", prove=False, **popen):
    """Runs a program to its end, its time bounded, and returns what it printed.

    With prove=True the process itself is judged at its start and half a second later: for programs
    that live long enough.
    """
    started = time.monotonic()
    with contextlib.ExitStack() as files:
        given, out, err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        given.write(data)
        given.seek(0)
        process = subprocess.Popen(
            argv,
            env=env or environment(preload),
            stdin=given,
            stdout=out,
            stderr=err,
            start_new_session=True,
            **popen,
        )
        try:
            if prove:
                prove_run(process)
            process.wait(timeout)
        except subprocess.TimeoutExpired:
            raise Failed("{} did not end in {} s".format(" ".join(argv)[:300], timeout)) from None
        finally:
            if process.poll() is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        out.seek(0)
        err.seek(0)
        result = Result(argv, process.returncode, out.read(), err.read(), 0)
    result.seconds = time.monotonic() - started
    complaints(result.err)
    return result


def complaints(text):
    """Fails on what the loader or the library say when a program is not served as it should be."""
    for line in text.decode("utf-8", "replace").splitlines():
        if "cannot be preloaded" in line or line.startswith("hakmem: "):
            raise Failed("on stderr: " + line)


def run_both(argv, timeout=60, **kwargs):
    """Runs a program without the library and with it: what it prints must be the same."""
    control = run(argv, timeout, preload=False, **kwargs).ok()
    result = run(argv, timeout, preload=True, **kwargs).ok()
    same("output of " + " ".join(argv)[:100], result.out, control.out)
    return result


# ---- Proof ---------------------------------------------------------------------------------------


def prove_command(argv, timeout=60, env=None, **popen):
    """Runs a program and all that it starts, and proves by the loader's own log who served them."""
    if not (PROVE and LIB):
        return run(argv, timeout, env=env, **popen).ok()
    with tempfile.TemporaryDirectory(prefix="proof.") as folder:
        os.chmod(folder, 0o777)
        logged = proof.environment(LIB, folder, env or environment())
        result = run(argv, timeout, env=logged, **popen).ok()
        verdict = proof.judge_log(folder, LIB)
    accept(verdict, "programs run by " + " ".join(argv)[:60])
    return result


def prove_pid(pid, lib=None, seconds=5):
    """Proves that a running process is served. It may still be starting: that takes a moment."""
    if not (PROVE and LIB):
        return None
    verdict = None
    deadline = time.monotonic() + seconds
    while True:
        try:
            verdict = proof.judge_pid(pid, lib or LIB)
            if verdict.good:
                return accept(verdict, f"process {pid}")
        except OSError as error:
            if not os.path.exists(f"/proc/{pid}/maps") or is_zombie(pid):
                raise Failed(f"process {pid} ended before it could be judged") from error
            if time.monotonic() > deadline:
                raise
        if time.monotonic() > deadline:
            return accept(verdict, f"process {pid}")
        time.sleep(0.05)


def prove_run(process):
    """Proves a process at its start, and once more when it had the time to load and call more.

    One that fails by itself is left to its caller, who reads its status.
    """
    try:
        prove_pid(process.pid)
    except Failed:
        if process.poll() in (None, 0):
            raise
        return
    time.sleep(0.5 if PROVE and LIB else 0)
    try:
        prove_pid(process.pid)
    except Failed:
        if process.poll() is None:
            raise


def prove_tree(pid, at_least, lib=None):
    """Proves that a process and its descendants, `at_least` so many together, are served."""
    if not (PROVE and LIB):
        return
    judged = set()

    def enough():
        # Some end before they are looked at; others come.
        for member in tree(pid):
            if member in judged:
                continue
            try:
                prove_pid(member, lib)
                judged.add(member)
            except Failed:
                if os.path.exists(f"/proc/{member}/maps") and not is_zombie(member):
                    raise
        return len(judged) >= at_least

    wait_for(enough, f"{at_least} processes under {pid} that can be judged")


_said = set()


def accept(verdict, what):
    if not verdict.good:
        raise Failed(f"{what}: not served whole by {verdict.lib}\n{verdict.report()}")
    names = ", ".join(sorted({os.path.basename(name) for name in verdict.images}))
    line = f"proved: {names} served whole ({len(verdict.bound)} symbols)"
    if line not in _said:
        _said.add(line)
        say(line)
    return verdict


# ---- Processes -----------------------------------------------------------------------------------


def children(pid):
    found = []
    with contextlib.suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with contextlib.suppress(OSError):
                with open(f"/proc/{pid}/task/{thread}/children") as file:
                    found += [int(word) for word in file.read().split()]
    return found


def tree(pid):
    """The process and all its descendants."""
    found = [pid]
    for member in found:
        found += children(member)
    return found


def is_zombie(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


def wait_for(condition, what, seconds=20, process=None):
    """Waits until the condition holds. It may raise OSError while it doesn't."""
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            value = condition()
            if value:
                return value
        if process is not None and process.poll() is not None:
            raise Failed(f"{what}: the process ended with {process.returncode}")
        if time.monotonic() > deadline:
            raise Failed(f"no {what} within {seconds} s")
        time.sleep(0.05)


@contextlib.contextmanager
def server(argv, log, stop=signal.SIGTERM, seconds=20, env=None, **popen):
    """A server that runs inside the block and is ended by its own pid. Must end with status 0."""
    with open(log, "ab") as file:
        process = subprocess.Popen(
            argv,
            env=env or environment(),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            **popen,
        )
    try:
        yield process
        if process.poll() is None:
            process.send_signal(stop)
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Failed(f"{argv[0]} did not end on signal {stop}") from None
        check(status == 0, f"{argv[0]} ended with status {status}")
        with open(log, "rb") as file:
            complaints(file.read())
    except BaseException:
        with contextlib.suppress(OSError), open(log, "rb") as file:
            tail = file.read()[-2000:].decode("utf-8", "replace")
            print(f"--- {log}\n{tail}---", file=sys.stderr)
        raise
    finally:
        if process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()


def free_port():
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def unprivileged():
    """(uid, gid) of a user for programs that refuse root; None when we are no root."""
    if os.geteuid() != 0:
        return None
    entry = pwd.getpwnam("nobody")
    return entry.pw_uid, entry.pw_gid


def end_leftovers():
    """Ends what a failed test left: all descendants come to us, since we are their subreaper."""
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline:
        left = children(os.getpid())
        if not left:
            return
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        for pid in left:
            with contextlib.suppress(OSError):
                os.waitpid(pid, 0)


def run_test(main):
    """Runs `main(work)` and exits with its outcome."""
    name = os.path.basename(sys.argv[0])
    if PROVE and not LIB:
        print(f"{name}: set HAK_TEST_LIB to the library under test", file=sys.stderr)
        sys.exit(FAILED)
    if LIB and not os.path.isfile(LIB):
        print(f"{name}: no library at {LIB}", file=sys.stderr)
        sys.exit(FAILED)

    def too_late(_signal, _frame):
        raise Failed(f"the test did not end in {SCRIPT_SECONDS} s")

    def ended(_signal, _frame):
        raise KeyboardInterrupt

    pr_set_child_subreaper = 36
    ctypes.CDLL(None).prctl(pr_set_child_subreaper, 1, 0, 0, 0)
    signal.signal(signal.SIGALRM, too_late)
    signal.signal(signal.SIGTERM, ended)
    signal.alarm(SCRIPT_SECONDS)
    status, started = PASSED, time.monotonic()
    work = tempfile.mkdtemp(prefix="hakmem-compat.")
    try:
        os.chdir(work)
        main(work)
    except Skipped as reason:
        say(f"skipped: {reason}")
        status = SKIPPED
    except Failed as reason:
        print(f"{name}: FAILED: {reason}", file=sys.stderr)
        status = FAILED
    except KeyboardInterrupt:
        status = FAILED
    except Exception:
        traceback.print_exc()
        status = FAILED
    finally:
        signal.alarm(0)
        end_leftovers()
        os.chdir("/")
        shutil.rmtree(work, ignore_errors=True)
    if status == PASSED:
        say(f"{name}: passed in {time.monotonic() - started:.1f} s")
    sys.exit(status)
