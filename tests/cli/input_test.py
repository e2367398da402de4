"""What comes in: standard input, pipes, chats that do not fit, the context as a limit; and what happens to programs that a benchmark started.

Usage: input_test.py LATHE SOURCE
"""

import os
import signal
import subprocess
import sys
import time
import unittest

import clilib

USAGE, FAILURE = 2, 1
GREEDY = ["--temp", "0", "-n", "8"]


class InputTest(clilib.Case):
    def shell(self, command):
        """(exit code, stdout, stderr) of a command line in which $LATHE is the program."""
        done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=300, env=dict(self.lathe.environment, LATHE=self.lathe.program))
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def test_stdin_that_cannot_be_read(self):
        for arguments, why in [("--chat < /", "Is a directory"), ("-n 5 < /", "Is a directory"), ("--chat <&-", "Bad file descriptor"), ("<&-", "Bad file descriptor"),
                               ("-f - < /", "Is a directory")]:
            code, out, said = self.shell(f'"$LATHE" run {arguments}')
            self.assertEqual((code, out.strip(), said), (FAILURE, "", f"error: cannot read stdin: {why}\n"), arguments)

    def chat(self, text, *arguments):
        done = self.lathe.run("run", "--chat", "--hide-reasoning", *GREEDY, *arguments, stdin=text)
        return done.returncode, done.stdout.decode(), done.stderr.decode()

    def test_a_chat_survives_a_turn_that_is_too_long(self):
        alone = self.chat(b"Say hello.\n", "-c", "64")
        self.assertEqual((alone[0], alone[2]), (0, ""))
        code, out, said = self.chat(b"word " * 200 + b"\nSay hello.", "-c", "64")
        self.assertEqual((code, out), (USAGE, alone[1]))
        self.assertEqual(said.count("\n"), 1, said)
        self.assertIn("the context holds 64 and the answer needs at least one; this turn is left out\n", said)

    def test_a_full_context_asks_for_clear(self):
        turn = b"Say hello.\n"
        code, out, said = self.chat(turn * 6 + b"/clear\n" + turn, "-c", "48")
        self.assertEqual(code, USAGE)
        self.assertIn("/clear makes room", said)
        self.assertGreater(len(said.splitlines()), 1)
        fresh = self.chat(turn, "-c", "48")[1].strip()
        self.assertEqual(out.strip().splitlines()[-len(fresh.splitlines()):], fresh.splitlines())

    def test_a_turn_that_is_no_text(self):
        code, out, said = self.chat(b"a\xffb\nSay hello.\n")
        self.assertEqual((code, out), (USAGE, self.chat(b"Say hello.\n")[1]))
        self.assertIn("not UTF-8 at byte 1", said)

    def test_prompt_and_answer_fit_the_context(self):
        usage = self.lathe.json("run", "-p", "Hi", "-c", "1000", "--json", "--temp", "0", "--ignore-eos", "-n", "1")["usage"]
        for more in (1, 2, 9):
            out = self.lathe.json("run", "-p", "Hi", "-c", str(usage["prompt_tokens"] + more), "--json", "--temp", "0", "--ignore-eos")
            self.assertEqual((out["usage"]["completion_tokens"], out["usage"]["total_tokens"], out["finish_reason"]), (more, usage["prompt_tokens"] + more, "context"))

    def test_a_token_has_one_bias(self):
        done = self.lathe.run("run", "-p", "hi", "--logit-bias", "5=100", "--logit-bias", "5=-100")
        self.assertEqual((done.returncode, done.stderr), (USAGE, b"error: --logit-bias: token 5 is given twice, expected once\n"))

    def test_prompts_from_pipes(self):
        wanted = self.lathe.good("run", "-p", "Say hello.", *GREEDY)
        options = " ".join(GREEDY)
        for command in (f'"$LATHE" run -f <(sleep 0.2; printf "Say hello.") {options}', f'printf "Say hello." | "$LATHE" run -f /dev/stdin {options}'):
            self.assertEqual(self.shell(command), (0, wanted, ""), command)
        code, _, said = self.shell('"$LATHE" run -f /dev/zero')
        self.assertEqual((code, said), (USAGE, "error: the prompt in '/dev/zero' is longer than the limit of 67108864 bytes\n"))

    def test_text_that_is_not_utf8(self):
        binary = self.write("binary", b"abc\xff" + b"\0" * 35_000_000)
        for what, arguments in [("-p is not UTF-8 at byte 0", ["-p", b"\xff"]), ("--system is not UTF-8 at byte 2", ["-p", "x", "--system", b"ab\xc3"]),
                                ("--stop is not UTF-8 at byte 0", ["-p", "x", "--stop", b"\xff"]), (f"'{binary}' is not UTF-8 at byte 3", ["-f", binary])]:
            done = subprocess.run([self.lathe.program, "run", *arguments], capture_output=True, check=False, env=self.lathe.environment, timeout=100)
            self.assertEqual((done.returncode, done.stderr.decode()), (USAGE, f"error: {what}: expected text\n"))

    def test_a_benchmark_takes_its_programs_along(self):
        marker = self.path("started")
        program = self.write("slow.sh", f"#!/bin/sh\nsleep 600 & echo $! > {marker}\nwait\n".encode())
        os.chmod(program, 0o755)
        for stop in (signal.SIGTERM, signal.SIGINT):
            with subprocess.Popen([self.lathe.program, "bench", "ab", program, program], stderr=subprocess.PIPE, env=self.lathe.environment) as process:
                while not os.path.exists(marker) or not os.path.getsize(marker):
                    time.sleep(0.01)
                with open(marker, encoding="utf-8") as file:
                    grandchild = int(file.read())
                process.send_signal(stop)
                self.assertEqual(process.wait(60), -stop)
            os.remove(marker)
            for _ in range(1000):
                if not self.runs(grandchild):
                    break
                time.sleep(0.01)
            self.assertFalse(self.runs(grandchild), stop)

    @staticmethod
    def runs(process):
        try:
            with open(f"/proc/{process}/stat", encoding="utf-8") as file:
                return file.read().rpartition(")")[2].split()[0] != "Z"
        except FileNotFoundError:
            return False


if __name__ == "__main__":
    InputTest.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
