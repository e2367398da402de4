"""bench and eval from outside: arms, baselines, rows and preprocessing that do not fit are refused before anything is measured.

Usage: bench_eval_test.py LATHE SOURCE
"""

import json
import os
import struct
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
        for code, bad, word in [
            (2, "--isa nonsense", "nonsense"), (2, "--frobnicate 1", "frobnicate"), (1, "-m /nowhere/model", "/nowhere/model"), (1, "/nowhere/lathe", "/nowhere/lathe"),
        ]:
            done = self.lathe.run("bench", "ab", "--pairs", "2", "--verb-args", SMALL, "--a", "-t 1", "--b", bad)
            said = done.stderr.decode()
            self.assertEqual((done.returncode, done.stdout), (code, b""), said)
            self.assertTrue(word in said and "arm" in said, said)
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

    FEW = ["--only", "heldout,add_2_digits,recall_512", "--rows", "2"]

    def test_a_model_against_itself(self):
        report = self.lathe.json("eval", "--json", "--gate", "--against", self.lathe.builtin, *self.FEW)
        heldout = report["comparison"]["heldout"]
        self.assertEqual((heldout["rows"], heldout["tokens"], heldout["kl_nats"]["mean"], heldout["kl_nats"]["worst"]["kl"]), (2, 2046, 0, 0))
        self.assertEqual((heldout["top1_agreement"]["share"], heldout["difference"]["bits_per_byte"], heldout["relative"]), (1, 0, 0))
        self.assertEqual(report["bits_per_byte"], report["against"]["bits_per_byte"])
        for name, rows in report["comparison"]["sets"].items():
            self.assertEqual((rows["rows"], rows["right_here_only"], rows["right_there_only"]), (2, 0, 0), name)
        self.assertEqual((report["gate"]["passed"], report["gate"]["complete"]), (True, True))
        self.assertEqual([c["name"] for c in report["gate"]["checks"]], ["bits per byte", "recall", "tasks", "set add_2_digits", "set recall_512"])

    def test_settings_against_others(self):
        report = self.lathe.json("eval", "--json", "-t", "2", "--against", "--dtype float32 -t 1", *self.FEW)
        settings = [run["settings"]["engine.dtype"]["value"] for run in (report, report["against"])]
        self.assertEqual(settings, ["bfloat16", "float32"])
        self.assertEqual([run["settings"]["engine.threads"]["value"] for run in (report, report["against"])], [2, 1])
        mean = report["comparison"]["heldout"]["kl_nats"]["mean"]
        self.assertTrue(0 < mean < 1e-3, mean)
        self.assertNotIn("gate", report)
        # The comparison gives each side what it gives alone.
        alone = self.lathe.json("eval", "--json", "--dtype", "float32", *self.FEW)
        self.assertEqual((alone["bits_per_byte"], alone["sets"]), (report["against"]["bits_per_byte"], report["against"]["sets"]))

    def test_sides_with_steps_of_different_sizes(self):
        few = ["--only", "heldout", "--rows", "1"]
        heldout = self.lathe.json("eval", "--json", "-t", "1", "--against", "--batch-tokens 64", *few)["comparison"]["heldout"]
        self.assertEqual((heldout["kl_nats"]["mean"], heldout["bits_per_byte_here"]), (0, heldout["bits_per_byte_there"]))

    def test_the_gate_sees_a_wrong_scale(self):
        def edit(tensors):
            name = "model.language_model.layers.0.mlp.down_proj.weight_scale_inv"
            dtype, shape, data = tensors[name]
            scales = struct.unpack(f"<{len(data) // 4}f", data)
            tensors[name] = (dtype, shape, struct.pack(f"<{len(scales)}f", *(scale / 2 for scale in scales)))

        wrong = clilib.copy_model(self.lathe.builtin, self.path("wrong_scale"), tensors=edit)
        arguments = ["eval", wrong, "--gate", "--against", self.lathe.builtin, *self.FEW]
        done = self.lathe.run(*arguments, "--json")
        said = done.stderr.decode()
        self.assertEqual((done.returncode, said.count("\n")), (FAILURE, 1), said)
        self.assertTrue(said.startswith("error: the gate is not passed: bits per byte: "), said)
        gate = json.loads(done.stdout)["gate"]
        self.assertEqual((gate["passed"], gate["checks"][0]["passed"]), (False, False))
        self.assertGreater(gate["checks"][0]["lost"], 0.5)
        page = self.lathe.run(*arguments).stdout.decode()
        self.assertIn("FAILED bits per byte", page)
        self.lathe.good("eval", "--gate", "--against", wrong, *self.FEW)  # the other way round it is a gain

    def test_a_gate_that_is_not_whole_is_no_pass(self):
        row = {"prompt": [3546, 3548, 17], "answer": [18, 3551], "reasoning": 0}
        arguments = ["eval", "--gate", "--against", self.lathe.builtin, "--sets", self.sets("gate", row)]
        done = self.lathe.run(*arguments, "--json")
        self.assertEqual(done.returncode, FAILURE)
        self.assertIn("the gate cannot be judged as a whole: bits per byte, recall not measured", done.stderr.decode())
        gate = json.loads(done.stdout)["gate"]
        self.assertEqual((gate["passed"], gate["complete"], [c["passed"] for c in gate["checks"]]), (None, False, [None, None, True, True]))
        # Whoever names what is measured means it.
        page = self.lathe.good(*arguments, "--only", "add")
        self.assertIn("Not judged as a whole: bits per byte, recall not measured", page)

    def test_comparisons_that_cannot_be(self):
        for words, arguments in [(["--against"], ["--gate"]), (["--against"], ["--could-turn", "x.json"]), (["expected one of them"], ["--against", "-t 1", "--compare", "x.json"]),
                                 (["'--temp' is no flag of the engine"], ["--against", "--temp 0"]), (["--dtype", "without a value"], ["--against", "--dtype"]),
                                 (["int4", "float32"], ["--against", "--dtype int4"]), (["' '"], ["--against", " "]), (["nope"], ["--against", "--isa nope"])]:
            done = self.lathe.run("eval", *self.FEW, *arguments)
            self.assertEqual((done.returncode, done.stdout), (2, b""), arguments)
            for word in words:
                self.assertIn(word, done.stderr.decode())
        self.fails(["there is no model at '/nowhere/model'"], "eval", *self.FEW, "--against", "/nowhere/model")
        for text in ("{}", '{"could_turn": {"add_2_digits": {"0.02": 1}}}', '{"could_turn": {"add_2_digits": {"0.5": -1}}}'):
            with open(self.path("record.json"), "w", encoding="utf-8") as file:
                file.write(text)
            self.fails(["record.json", "could_turn"], "eval", *self.FEW, "--against", "-t 1", "--gate", "--could-turn", self.path("record.json"))

    def test_preprocessing_that_would_differ(self):
        for name, change in [("resample", 2), ("do_normalize", False), ("rescale_factor", 255), ("image_std", [0.2, 0, 0.2])]:

            def changed(text, name=name, change=change):
                return json.dumps(dict(json.loads(text), **{name: change}))

            model = clilib.copy_model(self.lathe.builtin, self.path(f"model_{name}"), change={"preprocessor_config.json": changed})
            self.fails(["preprocessor_config.json", f"'{name}'"], "run", "-m", model, "-p", "hi")


if __name__ == "__main__":
    BenchAndEval.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
