"""The chat on a terminal: history, /clear, Ctrl-C, end of input, dimmed and hidden reasoning.

Usage: chat_test.py LATHE SOURCE
"""

import os
import signal
import sys
import unittest

import clilib
import terminal

GREEDY = ["--temp", "0", "-n", "80"]
ENDLESS = ["--temp", "0", "--ignore-eos", "-n", "100000"]  # an answer that only Ctrl-C ends
DIM, PLAIN = b"\x1b[2m", b"\x1b[0m"


def visible(data):
    """Text without colours."""
    return data.replace(DIM, b"").replace(PLAIN, b"").replace(b"\x1b[1m", b"").decode()


class Chat(clilib.Case):
    def start(self, *arguments, env=None):
        session = terminal.Session([self.lathe.program, "run", *arguments], dict(self.lathe.environment, **(env or {})))
        self.addCleanup(session.close)
        return session

    def chat(self, *arguments, env=None):
        """A session that stands at its first prompt."""
        session = self.start(*arguments, env=env)
        self.assertIn(b"Chat with ", session.until(b"> " + PLAIN))
        return session

    def turn(self, session, text):
        session.send(text + "\n")
        answer = session.until(b"> " + PLAIN)
        return visible(answer).removesuffix("> ").strip("\n")

    def test_a_turn_knows_those_before_it(self):
        session = self.chat(*GREEDY)
        self.assertIn("Ada", self.turn(session, "My name is Ada."))
        self.assertIn("Ada", self.turn(session, "What is my name?"))
        session.send("/clear\n")
        session.until(b"> " + PLAIN)
        fresh = self.lathe.good("run", "-p", "What is my name?", *GREEDY)
        self.assertNotIn("Ada", fresh)
        self.assertEqual(self.turn(session, "What is my name?"), fresh.strip("\n"))
        session.send("/quit\n")
        self.assertEqual(session.end()[1], 0)

    def test_clear_keeps_the_system_prompt(self):
        session = self.chat("--system", "The secret word is wizard.", *GREEDY)
        for _ in range(2):
            self.assertIn("wizard", self.turn(session, "What is the secret word?"))
            session.send("/clear\n")
            session.until(b"> " + PLAIN)

    def test_ctrl_c_stops_the_answer_only(self):
        session = self.chat(*ENDLESS)
        for prompt, word in (("Tell me a story about a fox.", b"Once upon"), ("What is 47 + 85?", b"132")):
            session.send(prompt + "\n")
            session.until(word)
            session.send(terminal.CTRL_C)
            session.until(b"> " + PLAIN)
        session.send("half a line" + terminal.CTRL_C)  # at the prompt: a new line, and what was typed is gone
        session.until(b"\n")
        session.until(b"> " + PLAIN)
        session.send(terminal.CTRL_D)
        rest, code = session.end()
        self.assertEqual((rest.strip(), code), (b"", 0), "end of input is a good end, also after Ctrl-C")

    def test_what_was_shown_of_a_stopped_answer_is_history(self):
        session = self.chat(*ENDLESS)
        session.send("My name is Ada.\n")
        session.until(b"Nice to meet you")
        session.send(terminal.CTRL_C)
        session.until(b"> " + PLAIN)
        session.send("What is my name?\n")
        session.until(PLAIN + b"\n")
        session.until(b"Ada")
        session.send(terminal.CTRL_C)
        session.until(b"> " + PLAIN)

    def test_a_turn_that_does_not_fit_is_told_and_forgotten(self):
        session = self.chat("-c", "64", *GREEDY)
        session.send("Tell me a story. " * 40 + "\n")
        session.until(b"> " + PLAIN)
        self.assertIn(b"error: ", session.errors())
        self.assertIn("Paris", self.turn(session, "What is the capital of France?"))

    def test_one_prompt_ends_with_130(self):
        for arguments in ([], ["--json"]):
            session = self.start("-p", "Tell me a story about a fox.", *ENDLESS, *arguments, "-c", "100000")
            if arguments:
                session.catches_interrupts()
                self.assertTrue(session.silent_for(1.0), "JSON is printed as a whole")
            else:
                session.until(b"Once upon")
            session.send(terminal.CTRL_C)
            rest, code = session.end()
            self.assertEqual(code, 130)
            if arguments:
                self.assertIn(b'"finish_reason": "cancelled"', rest)

    def test_a_signal_from_another_process(self):
        session = self.start("-p", "Tell me a story about a fox.", *ENDLESS)
        session.until(b"Once upon")
        os.kill(session.pid, signal.SIGINT)
        self.assertEqual(session.end()[1], 130)

    def test_reasoning_is_dim(self):
        question = ["-p", "What is 47 + 85?", *GREEDY]
        reasoning, answer = "7+5=12, 4+8+1=13, so 47 + 85 = 132", "47 + 85 = 132"

        def shown(*arguments, env=None):
            data, code = self.start(*question, *arguments, env=env).end()
            self.assertEqual(code, 0)
            return data

        whole = shown()
        dim, _, rest = whole.rpartition(PLAIN)
        self.assertEqual(visible(dim), reasoning)
        self.assertEqual(dim.count(DIM), dim.count(PLAIN) + 1)
        self.assertTrue(all(not part or part.startswith(DIM) for part in (dim + PLAIN).split(PLAIN)), "every piece of it")
        self.assertEqual(rest, f"\n{answer}\n".encode())
        self.assertEqual(shown("--hide-reasoning"), f"{answer}\n".encode())
        self.assertEqual(shown(env={"NO_COLOR": "1"}), f"{reasoning}\n{answer}\n".encode())
        # No terminal: the same words, no colours.
        self.assertEqual(self.lathe.good("run", *question), f"{reasoning}\n{answer}\n")
        self.assertEqual(self.lathe.good("run", *question, "--hide-reasoning"), f"{answer}\n")

    def test_a_chat_hides_reasoning_too(self):
        session = self.chat("--hide-reasoning", *GREEDY)
        for prompt, answer in (("What is 47 + 85?", "47 + 85 = 132"), ("What is the opposite of hot?", "The opposite of hot is cold.")):
            self.assertEqual(self.turn(session, prompt), answer)

    def test_a_chat_without_a_terminal(self):
        done = self.lathe.run("run", "--chat", *GREEDY, stdin=b"My name is Ada.\nWhat is my name?\n")
        self.assertEqual((done.returncode, done.stderr), (0, b""))
        self.assertNotIn(b"\x1b", done.stdout)
        self.assertEqual(done.stdout.count(b"Ada!"), 1)
        self.assertIn(b"Ada", done.stdout[done.stdout.index(b"Ada!") + 4:], "the second answer knows the first turn")


if __name__ == "__main__":
    Chat.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
