"""bench make-slice: every verb works on what it writes; what it refuses; what an interruption leaves.

Usage: slice_test.py LATHE SOURCE
"""

import json
import math
import os
import signal
import struct
import subprocess
import sys
import time
import unittest

import clilib

USAGE, FAILURE = 2, 1


class Slice(clilib.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.config = os.path.join(cls.lathe.builtin, "config.json")
        cls.small = ["--config", cls.config, "--experts", "4"]
        cls.made = {}
        for weights in ("fp8", "bf16"):
            cls.made[weights] = cls.path(f"slice_{weights}")
            cls.lathe.good("bench", "make-slice", cls.made[weights], *cls.small, "--weights", weights)

    def refuse(self, code, words, *arguments):
        done = self.lathe.run("bench", "make-slice", *arguments)
        said = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (code, b""), said)
        self.assertTrue(said.startswith("error: ") and said.count("\n") == 1, said)
        for word in words:
            self.assertIn(word, said)

    def logits(self, model):
        ids = self.write("ids.json", b"[5, 6, 7, 3000, 3001, 9, 10, 11, 12]")
        out = self.path("out.safetensors")
        self.lathe.good("logits", model, "--ids", ids, "--out", out, "--mtp", "--dtype", "float32")
        tensors = clilib.read_tensors(out)
        return {name: struct.unpack(f"<{len(data) // 4}f", data) for name, (_, _, data) in tensors.items()}

    def test_logits_are_finite_and_spread(self):
        for model in self.made.values():
            for values in self.logits(model).values():
                self.assertTrue(all(map(math.isfinite, values)))
                spread = math.sqrt(sum(v * v for v in values) / len(values))
                self.assertTrue(0.3 < spread < 3, spread)

    def test_every_verb_takes_it(self):
        model = self.made["fp8"]
        facts = self.lathe.json("inspect", model, "--json")
        self.assertEqual(facts["dimensions"]["layers"], 4)
        self.lathe.good("run", model, "-p", "Hello.", "-n", "4")
        self.lathe.good("bench", "model", model, "--check")

    def test_it_says_what_it_is(self):
        planned = self.lathe.json("bench", "make-slice", *self.small, "--check", "--json")
        self.assertEqual((planned["layers"], planned["kda_layers"], planned["dense_layers"]), (4, 3, 1))
        stored = 0
        with open(os.path.join(self.made["fp8"], "model.safetensors.index.json"), encoding="utf-8") as file:
            index = json.load(file)
        for name in set(index["weight_map"].values()):
            stored += sum(len(data) for _, _, data in clilib.read_tensors(os.path.join(self.made["fp8"], name)).values())
        self.assertEqual((planned["bytes"], planned["tensors"]), (stored, len(index["weight_map"])))
        published = self.lathe.json("bench", "make-slice", "--check", "--json")
        self.assertEqual(published["vocabulary"], 154880)
        self.assertLess(published["bytes"], 24 << 30)
        rows = self.lathe.json("bench", "make-slice", "--check", "--json", "--vocabulary", "32768", "--no-draft", "--no-vision")
        self.assertAlmostEqual(rows["parameters"] / 1e9, 3.45, delta=0.005)  # the slice that other engines were measured with

    def test_refused(self):
        new = self.path("new")
        self.refuse(USAGE, ["OUT_DIR"])
        self.refuse(USAGE, ["46 layers", "1 to 45"], new, "--layers", "46")
        self.refuse(USAGE, ["7 experts", "expected 8"], new, "--experts", "7")
        self.refuse(USAGE, ["vocabulary of 100", "3584"], new, "--vocabulary", "100")
        self.refuse(FAILURE, [self.made["fp8"], "already"], self.made["fp8"], *self.small)
        self.refuse(USAGE, [self.lathe.builtin, "outside"], os.path.join(self.lathe.builtin, "slice"), *self.small)
        self.refuse(FAILURE, ["nowhere"], self.path("nowhere/slice"), *self.small)
        self.refuse(FAILURE, ["none.json"], new, "--config", self.path("none.json"))
        self.refuse(FAILURE, ["model_type", "llama"], new, "--config", self.write("llama.json", b'{"model_type": "llama"}'))
        for arguments in (["--weights", "int4"], ["--frobnicate"], ["--layers", "many"]):
            done = self.lathe.run("bench", "make-slice", new, *arguments)
            self.assertEqual(done.returncode, USAGE, arguments)
        self.assertFalse(os.path.exists(new) or os.path.exists(new + ".part"))

    def test_a_full_disk_is_told_before(self):
        # 321 billion parameters in BF16: more than the disks of machines that run tests have free.
        space = os.statvfs(self.folder.name)
        if space.f_bavail * space.f_frsize > 640e9:
            self.skipTest("this disk has room for the published model")
        self.refuse(FAILURE, ["bytes of disk"], self.path("whole"), "--layers", "45", "--experts", "288", "--weights", "bf16")
        self.assertFalse(os.path.exists(self.path("whole")) or os.path.exists(self.path("whole.part")))

    def test_a_disk_that_fills_up(self):
        out = self.path("full")
        limited = f"ulimit -f 2000; exec '{self.lathe.program}' bench make-slice '{out}' {' '.join(self.small)}"
        done = subprocess.run(["sh", "-c", limited], capture_output=True, check=False, timeout=120, env=self.lathe.environment)
        self.assertEqual(done.returncode, FAILURE, done.stderr)
        self.assertIn(b"File too large", done.stderr)
        self.assertFalse(os.path.exists(out))
        self.lathe.good("bench", "make-slice", out, *self.small)  # goes on when there is room

    def test_interrupted(self):
        out = self.path("stopped")
        arguments = [self.lathe.program, "bench", "make-slice", out, "--vocabulary", "32768", "--layers", "1", "--no-draft", "--no-vision"]
        with subprocess.Popen(arguments, stderr=subprocess.PIPE, env=self.lathe.environment) as process:
            deadline = time.monotonic() + 60
            while not os.path.exists(out + ".part") and time.monotonic() < deadline:
                time.sleep(0.001)
            process.send_signal(signal.SIGINT)
            said = process.communicate()[1].decode()
        if process.returncode == 0:
            self.skipTest("it was done before it was stopped")
        self.assertEqual(process.returncode, 130, said)
        self.assertFalse(os.path.exists(out))
        self.assertFalse(os.path.exists(out + ".part"))  # no file was whole


if __name__ == "__main__":
    clilib.Case.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
