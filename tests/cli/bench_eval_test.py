"""bench and eval from outside: arms, baselines, rows and preprocessing that do not fit are refused before anything is measured.

Usage: bench_eval_test.py LATHE SOURCE
"""

import json
import os
import sys
import tempfile
import unittest

import clilib

FAILURE = 1
SMALL = "--prompt 8 --batch 1 --samples 1 --decode-context 8"


class BenchAndEval(unittest.TestCase):
    lathe = None  # set by main

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lathe_bench_")  # pylint: disable=consider-using-with

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def fails(self, words, *arguments):
        done = self.lathe.run(*arguments)
        said = done.stderr.decode(errors="replace")
        self.assertEqual(done.returncode, FAILURE, said)
        self.assertEqual(done.stdout, b"", said)
        last = said.rstrip("\n").rpartition("\n")[2]
        self.assertTrue(last.startswith("error: "), said)
        for word in words:
            self.assertIn(word, said)
        return said

    def test_arms_that_begin_with_dashes(self):
        arms = ["--isa avx2 -t 1", "--isa scalar -t 1"]
        for given in [arms, ["--", *arms], ["--a", arms[0], "--b", arms[1]], [f"--a={arms[0]}", arms[1]], ["--json", *arms]]:
            report = self.lathe.json("bench", "ab", "--pairs", "2", "--verb-args", SMALL, *([] if "--json" in given else ["--json"]), *given)
            self.assertEqual([report["a"]["arguments"], report["b"]["arguments"]], [arms[0].split(), arms[1].split()])
            self.assertEqual(len(report["runs"]), 4)

    def test_arms_that_are_programs(self):
        program, flags = self.lathe.program, "--isa scalar -t 1"
        few = ["--pairs", "2", "--verb-args", SMALL]
        for given in [[*few, "--json", program, flags], [program, "--isa", "scalar", *few, flags, "--json"], ["--b", flags, program, *few, "--json"], [*few, "--json", "--", program, flags]]:
            report = self.lathe.json("bench", "ab", *given)
            self.assertEqual([report["a"]["name"], report["b"]["name"]], [program, flags])
        for words in [[program], [program, flags, program], [program, flags, "--a", flags]]:
            done = self.lathe.run("bench", "ab", *words)
            self.assertEqual((done.returncode, done.stdout), (2, b""), done.stderr)

    def test_arms_are_checked_before_anything_runs(self):
        for bad, word in [("--isa nonsense", "nonsense"), ("--frobnicate 1", "frobnicate"), ("-m /nowhere/model", "/nowhere/model"), ("/nowhere/lathe", "/nowhere/lathe")]:
            said = self.fails([word, "arm"], "bench", "ab", "--pairs", "2", "--verb-args", SMALL, "--a", "-t 1", "--b", bad)
            self.assertNotIn("runs", said.replace("runs 0", ""))

    def test_baseline_is_read_first(self):
        with open(self.path("broken.json"), "w", encoding="utf-8") as file:
            file.write("{")
        with open(self.path("ops.json"), "w", encoding="utf-8") as file:
            json.dump({"suite": "ops", "ops": [{"op": "add", "median_ns": 5}]}, file)
        for suite, path, word in [("model", "nowhere.json", "nowhere.json"), ("model", "broken.json", "broken.json"), ("model", "ops.json", "expected one of bench model"),
                                  ("ops", "broken.json", "broken.json")]:
            said = self.fails([word], "bench", suite, "--baseline", self.path(path))
            self.assertEqual(said.count("\n"), 1, said)

    def sets(self, name, row, index=None):
        folder = self.path(name)
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, "index.json"), "w", encoding="utf-8") as file:
            json.dump({"bytes_per_token_of_evaluate": 3.5, "sets": {"add": {}}, **(index or {})}, file)
        with open(os.path.join(folder, "add.jsonl"), "w", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        return folder

    def test_rows_outside_the_model(self):
        good = {"prompt": [3546, 3548, 17], "answer": [18, 3551], "reasoning": 0}
        self.assertEqual(self.lathe.json("eval", "--json", "--sets", self.sets("good", good))["sets"]["add"]["n"], 1)
        for name, row, index, words in [
            ("answer", dict(good, answer=[18, 3584]), None, ["'answer'", "3584"]),
            ("placeholder", dict(good, prompt=[3546, 3578, 17]), None, ["placeholder 3578", "names 0 pictures"]),
            ("never", good, {"first_id_never_chosen": -1}, ["index.json", "first_id_never_chosen", "-1"]),
            ("far", good, {"first_id_never_chosen": 4000}, ["index.json", "first_id_never_chosen", "4000"]),
            ("stop", good, {"stop_ids": [9999]}, ["index.json", "stop_ids", "9999"]),
        ]:
            place = ["add.jsonl line 1", "set 'add', row 0"] if index is None else []
            self.fails(words + place, "eval", "--sets", self.sets(name, row, index))

    def test_preprocessing_that_would_differ(self):
        for name, change in [("resample", 2), ("do_normalize", False), ("rescale_factor", 255), ("image_std", [0.2, 0, 0.2])]:

            def changed(text, name=name, change=change):
                return json.dumps(dict(json.loads(text), **{name: change}))

            model = clilib.copy_model(self.lathe.builtin, self.path(f"model_{name}"), change={"preprocessor_config.json": changed})
            self.fails(["preprocessor_config.json", f"'{name}'"], "run", "-m", model, "-p", "hi")


if __name__ == "__main__":
    BenchAndEval.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
