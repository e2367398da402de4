"""`lathe eval` on the built-in model against the results recorded in data/eval/eval.json.

Usage: eval_test.py fast|full LATHE SOURCE
fast: every 20th row of each set, two rows of each recall set up to 8k tokens, 6 held-out rows, exact mode, row by row.
full: everything in exact and in fast mode.
"""

import json
import os
import sys
import tempfile
import unittest

import evallib

# Sum of -log p over the predicted ids of the first HELDOUT_ROWS held-out rows, in nats: see reference.md.
HELDOUT_NLL_NATS = 22121.138194816955


class Eval(unittest.TestCase):
    lathe = None  # set by main
    sets = None
    recorded = None

    def check_drafts(self, report, recorded):
        for kind, allowed in (("all", 0.03), ("chat", 0.03), ("text", 0.06)):
            for step, rate in enumerate(recorded[kind]["rate"]):
                self.assertAlmostEqual(report["draft"][kind]["rate"][step], rate, delta=allowed, msg=f"drafts of {kind}, step {step + 1}")


class Fast(Eval):
    def test_rows(self):
        with tempfile.TemporaryDirectory(prefix="lathe_eval_") as folder:
            picked = evallib.write_subset(self.sets, folder)
            report = evallib.evaluate(self.lathe, "float32", folder)
        expected = {name for name in picked if name not in ("heldout", "draft_prompts")}
        self.assertEqual(set(report["sets"]), expected)
        for name in expected:
            self.assertEqual(report["sets"][name]["n"], len(picked[name]), name)
        turned, compared = evallib.turned_rows(report, self.recorded, picked)
        self.assertGreater(compared, 400)
        self.assertEqual(turned, [], f"of {compared} rows")
        heldout = report["heldout"]
        self.assertEqual(heldout["rows"], evallib.HELDOUT_ROWS)
        self.assertAlmostEqual(heldout["nll_nats"] / HELDOUT_NLL_NATS, 1, delta=1e-6)
        print(f"{compared} rows as recorded, bits per byte of {evallib.HELDOUT_ROWS} rows {report['bits_per_byte']:.5f}")


class Full(Eval):
    def test_exact(self):
        report = evallib.evaluate(self.lathe, "float32", self.sets)
        self.assertAlmostEqual(report["bits_per_byte"], 1.36482, delta=0.0002)
        could = self.recorded["could_turn"]
        for name, score in self.recorded["tasks_fp8"].items():
            self.assertEqual(report["sets"][name]["n"], score["n"], name)
            self.assertAlmostEqual(report["sets"][name]["right"], score["right"], delta=could[name]["0.02"], msg=name)
        self.assertEqual(sum(s["n"] for s in report["sets"].values()), 8884)
        self.assertAlmostEqual(sum(s["right"] for s in report["sets"].values()), 7852, delta=25)
        self.assertEqual(evallib.turned_rows(report, self.recorded)[0], [])
        for name in ("recall_512", "recall_2048", "recall_8192"):
            self.assertEqual(report["sets"][name]["right"], report["sets"][name]["n"], name)
        self.assertEqual(report["sets"]["recall_8192_multi"]["n"], 36)
        self.assertGreaterEqual(report["sets"]["recall_8192_multi"]["right"], 34)
        self.assertGreaterEqual(report["sets"]["recall_32768"]["right"], 5)
        self.check_drafts(report, {"all": {"rate": [0.797, 0.849, 0.865]}, "chat": {"rate": [0.930, 0.931, 0.908]}, "text": {"rate": [0.554, 0.599, 0.657]}})
        given = report["draft_given"]["all"]
        for step, (right, tried) in enumerate([(2684, 3366), (2251, 2652), (1922, 2223)]):
            self.assertAlmostEqual(given["right"][step], right, delta=56, msg=f"step {step + 1}")
            self.assertAlmostEqual(given["tried"][step], tried, delta=56, msg=f"step {step + 1}")

    def test_fast_mode(self):
        report = evallib.evaluate(self.lathe, "bfloat16", self.sets)
        self.assertLessEqual(report["bits_per_byte"], 1.370)
        for name, score in self.recorded["tasks_fp8"].items():
            allowed = max(2, self.recorded["could_turn"][name]["0.1"])
            self.assertAlmostEqual(report["sets"][name]["right"], score["right"], delta=allowed, msg=name)


if __name__ == "__main__":
    Eval.lathe = os.path.abspath(sys.argv[2])
    Eval.sets = os.path.join(sys.argv[3], "data", "eval", "sets")
    with open(os.path.join(sys.argv[3], "data", "eval", "eval.json"), encoding="utf-8") as record:
        Eval.recorded = json.load(record)
    unittest.main(argv=sys.argv[:1], defaultTest="Fast" if sys.argv[1] == "fast" else "Full")
