"""A program on a terminal of its own, for tests that type."""

import os
import pty
import select
import signal
import tempfile
import termios
import time

CTRL_C, CTRL_D = "\x03", "\x04"
PATIENCE_S = 120  # of one wait; far more than any answer takes


class Session:
    """A running program whose stdin and stdout are a terminal. stderr goes to a file: progress would stand between the words."""

    def __init__(self, command, environment):
        self.log = tempfile.TemporaryFile()  # pylint: disable=consider-using-with
        # The child waits until the terminal is set: no echo, no carriage returns; Ctrl-C stays a signal.
        ready, go = os.pipe()
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            try:
                os.read(ready, 1)
                os.dup2(self.log.fileno(), 2)
                os.execve(command[0], command, environment)
            finally:
                os._exit(127)
        os.close(ready)
        mode = termios.tcgetattr(self.master)
        mode[1] &= ~termios.OPOST
        mode[3] &= ~termios.ECHO
        termios.tcsetattr(self.master, termios.TCSANOW, mode)
        os.write(go, b"x")
        os.close(go)
        self.seen = b""  # and not yet asked for

    def send(self, text):
        os.write(self.master, text.encode())

    def _more(self, seconds):
        """Reads what comes within that time; False: nothing, or the end."""
        if not select.select([self.master], [], [], max(0.0, seconds))[0]:
            return False
        try:
            piece = os.read(self.master, 65536)
        except OSError:  # how a closed terminal ends
            piece = b""
        self.seen += piece
        return bool(piece)

    def until(self, mark):
        """Everything up to and with `mark`."""
        end = time.monotonic() + PATIENCE_S
        while mark not in self.seen:
            if not self._more(end - time.monotonic()):
                raise AssertionError(f"waited for {mark!r}, got {self.seen!r}; errors: {self.errors()!r}")
        at = self.seen.index(mark) + len(mark)
        out, self.seen = self.seen[:at], self.seen[at:]
        return out

    def catches_interrupts(self):
        """Waits until the program has a handler for Ctrl-C of its own."""
        end = time.monotonic() + PATIENCE_S
        while True:
            with open(f"/proc/{self.pid}/status", encoding="utf-8") as status:
                caught = int(next(line for line in status if line.startswith("SigCgt")).split()[1], 16)
            if caught >> (signal.SIGINT - 1) & 1:
                return
            if time.monotonic() > end:
                raise AssertionError("no handler for SIGINT")
            time.sleep(0.01)

    def silent_for(self, seconds):
        return not self.seen and not self._more(seconds)

    def end(self):
        """What is left, and the exit code (negative: a signal), once the program has ended."""
        end = time.monotonic() + PATIENCE_S
        while self._more(end - time.monotonic()):
            pass
        if self.pid == 0:
            raise AssertionError("the program has ended before")
        done, status = os.waitpid(self.pid, 0 if time.monotonic() < end else os.WNOHANG)
        if done == 0:
            raise AssertionError(f"the program goes on; it printed {self.seen!r}")
        self.pid = 0
        return self.seen, os.waitstatus_to_exitcode(status)

    def errors(self):
        return os.pread(self.log.fileno(), 1 << 20, 0)  # the program shares the place of this file: it must not move

    def close(self):
        if self.pid != 0:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.pid = 0
        os.close(self.master)
        self.log.close()
