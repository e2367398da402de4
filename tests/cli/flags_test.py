"""Every flag of `run` that shapes the text, and what it must do to it: greedy or seeded, so that the text is known.

Usage: flags_test.py LATHE SOURCE
"""

import json
import os
import re
import sys
import unittest

import clilib

STORY = ["--raw", "-p", "Once upon a time there was a little fox who lived in the forest."]
SUM = ["-p", "What is 47 + 85?"]
SECRET = ["-p", "What is the secret word?"]
GREEDY = ["--temp", "0"]
DRAWN = ["--temp", "1", "--seed", "3"]


def words(out):
    return re.findall(r"\w+", out["text"])


def variety(out):
    """Different words over words."""
    return len(set(words(out))) / len(words(out))


class Flags(clilib.Case):
    def out(self, *arguments, tokens=60):
        return self.lathe.json("run", *arguments, "-n", str(tokens), "--json")

    def setUp(self):
        self.greedy = self.out(*STORY, *GREEDY)
        self.drawn = self.out(*STORY, *DRAWN)
        self.assertNotEqual(self.greedy["text"], self.drawn["text"])

    def test_what_leaves_one_token_is_greedy(self):
        for flag, value in (("--top-k", "1"), ("--top-p", "0.01"), ("--min-p", "0.999")):
            with self.subTest(flag=flag):
                self.assertEqual(self.out(*STORY, *DRAWN, flag, value)["text"], self.greedy["text"])

    def test_what_leaves_some_tokens_changes_the_draw(self):
        """Neutral, a flag changes nothing; narrower, the text is neither the greedy one nor the free one."""
        for flag, neutral, narrow in (("--top-k", "0", "2"), ("--top-p", self.own_top_p(), "0.3"), ("--min-p", "0", "0.4")):
            with self.subTest(flag=flag):
                self.assertEqual(self.out(*STORY, *DRAWN, flag, neutral)["text"], self.drawn["text"])
                self.assertNotIn(self.out(*STORY, *DRAWN, flag, narrow)["text"], (self.drawn["text"], self.greedy["text"]))
        self.assertNotEqual(self.out(*STORY, *DRAWN, "--top-p", "1")["text"], self.drawn["text"], "not given, the model's own value holds")

    def own_top_p(self):
        with open(os.path.join(self.lathe.builtin, "generation_config.json"), encoding="utf-8") as file:
            return str(json.load(file)["top_p"])

    def test_temperature_and_seed(self):
        self.assertEqual(self.out(*STORY, *DRAWN)["text"], self.drawn["text"])
        self.assertNotEqual(self.out(*STORY, "--temp", "1", "--seed", "4")["text"], self.drawn["text"])
        self.assertNotEqual(self.out(*STORY, "--temp", "0.7", "--seed", "3")["text"], self.drawn["text"])
        self.assertEqual(self.out(*STORY, "--temp", "0.01", "--seed", "3")["text"], self.greedy["text"])

    def test_penalties(self):
        """Above their neutral value fewer words come twice, below it more."""
        texts = {self.greedy["text"]}
        for flag, more, neutral, less in (("--presence-penalty", "2", "0", "-2"), ("--frequency-penalty", "2", "0", "-2"), ("--repetition-penalty", "1.5", "1", "0.7")):
            with self.subTest(flag=flag):
                self.assertEqual(self.out(*STORY, *GREEDY, flag, neutral)["text"], self.greedy["text"])
                rare, often = self.out(*STORY, *GREEDY, flag, more), self.out(*STORY, *GREEDY, flag, less)
                self.assertGreater(variety(rare), variety(self.greedy))
                self.assertLess(variety(often), variety(self.greedy))
                self.assertNotIn(often["text"], texts, "each in its own way")
                texts.add(often["text"])

    def test_frequency_counts_and_presence_does_not(self):
        """A word that is far ahead stays so if it is charged once, and not if it is charged each time."""
        start = ["--raw", "-p", "Count:", *GREEDY, "--logit-bias", f"{self.id_of(' fox')}=25"]
        none, presence, frequency = (self.out(*start, *flag, tokens=40)["text"] for flag in ([], ["--presence-penalty", "2"], ["--frequency-penalty", "2"]))
        self.assertEqual(none, " fox" * 40)
        self.assertEqual(presence, none)
        self.assertTrue(frequency.startswith(" fox fox fox"))
        self.assertGreater(len(set(frequency.split())), 1)

    def test_repetition_looks_at_the_prompt_too(self):
        """The other two look at the answer alone: they cannot change its first token."""
        fox = self.id_of(" fox")
        start = ["--raw", "-p", "The fox ran. The fox ran. The fox", *GREEDY]
        first = self.out(*start, tokens=1)["text"]
        self.assertNotEqual(self.out(*start, "--repetition-penalty", "3", tokens=1)["text"], first)
        for flag in ("--presence-penalty", "--frequency-penalty"):
            self.assertEqual(self.out(*start, flag, "2", tokens=1)["text"], first)
        self.assertEqual(self.out(*start, "--logit-bias", f"{fox}=100", tokens=2)["text"], " fox fox")

    def test_logit_bias(self):
        first = words(self.greedy)[0]
        self.assertNotEqual(words(self.out(*STORY, *GREEDY, "--logit-bias", f"{self.id_of(' ' + first)}=-100"))[0], first)
        two = self.out(*STORY, *GREEDY, "--logit-bias", f"{self.id_of(' fox')}=90", "--logit-bias", f"{self.id_of(' sun')}=100", tokens=3)
        self.assertEqual(two["text"], " sun sun sun")

    def test_length_and_stop(self):
        for tokens in (1, 7):
            out = self.out(*STORY, *GREEDY, tokens=tokens)
            self.assertEqual((out["usage"]["completion_tokens"], out["finish_reason"]), (tokens, "length"))
            self.assertTrue(self.greedy["text"].startswith(out["text"]))
        before, stop, _ = self.greedy["text"].partition("sleeping")
        self.assertTrue(stop)
        out = self.out(*STORY, *GREEDY, "--stop", stop, "--stop", "never said")
        self.assertEqual((out["text"], out["finish_reason"]), (before, "stop"))
        self.assertLess(out["usage"]["completion_tokens"], self.greedy["usage"]["completion_tokens"])

    def test_ignore_eos(self):
        whole, more = self.out(*SUM, *GREEDY), self.out(*SUM, *GREEDY, "--ignore-eos")
        self.assertEqual((whole["finish_reason"], more["finish_reason"]), ("stop", "length"))
        self.assertEqual(more["usage"]["completion_tokens"], 60)
        self.assertTrue(more["text"].startswith(whole["text"]))

    def test_system(self):
        plain, told = self.out(*SECRET, *GREEDY), self.out(*SECRET, *GREEDY, "--system", "The secret word is wizard.")
        self.assertNotIn("wizard", plain["text"])
        self.assertIn("wizard", told["text"])
        self.assertGreater(told["usage"]["prompt_tokens"], plain["usage"]["prompt_tokens"])

    def test_reasoning_effort(self):
        low, high, most = (self.out(*SUM, *GREEDY, "--reasoning-effort", effort) for effort in ("low", "high", "max"))
        self.assertEqual(low["reasoning"], "")
        self.assertTrue(high["reasoning"] and most["reasoning"])
        self.assertLess(low["usage"]["completion_tokens"], high["usage"]["completion_tokens"])
        self.assertEqual({out["text"] for out in (low, high, most)}, {"47 + 85 = 132"})

    def id_of(self, text):
        """Id of the token that is that text."""
        with open(os.path.join(self.lathe.builtin, "tokenizer.json"), encoding="utf-8") as file:
            return json.load(file)["model"]["vocab"][text.replace(" ", "\u0120")]


if __name__ == "__main__":
    Flags.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
