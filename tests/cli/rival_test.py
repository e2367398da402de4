"""bench rival with programs that stand in for llama.cpp's: what they are asked, what their figures become, what is refused before anything runs.

Usage: rival_test.py LATHE SOURCE
"""

import json
import os
import re
import stat
import sys
import unittest

import clilib

USAGE, FAILURE = 2, 1

# Writes what it was asked to a log beside it and answers with made-up rates: 100 tokens/s for prompts, 10 and 5 a sequence for decoding.
LLAMA_BENCH = r"""#!/usr/bin/env python3
import json, os, sys
words = sys.argv[1:]
if words == ["--help"]:
    print("  -n, --n-gen <n>")
    sys.exit(0)
with open(os.path.join(os.path.dirname(sys.argv[0]), "log"), "a") as log:
    print(os.path.basename(sys.argv[0]), *words, file=log)
value = lambda flag: words[words.index(flag) + 1]
if os.path.basename(sys.argv[0]) == "llama-batched-bench":
    print("main: n_kv_max = 1")
    for sequences in value("-npl").split(","):
        print(json.dumps({"pp": int(value("-npp")), "tg": int(value("-ntg")), "pl": int(sequences), "speed_tg": 5.0 * int(sequences)}))
elif "BROKEN" in words:
    print("[{}]")
elif "DIES" in words:
    sys.exit(3)
else:
    tests = [{"n_prompt": int(p), "n_gen": 0, "avg_ts": 100.0} for p in value("-p").split(",") if p != "0"]
    if value("-n") != "0":
        tests.append({"n_prompt": 0, "n_gen": int(value("-n")), "avg_ts": 10.0})
    print(json.dumps(tests))
"""


class Rival(clilib.Case):
    SMALL = ["--prompt", "8,16", "--decode-context", "8", "--samples", "1", "--pairs", "2", "-t", "1"]

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.gguf = cls.write("model.gguf", b"GGUF")
        cls.programs = {}
        for folder, names in [("both", ["llama-bench", "llama-batched-bench"]), ("one", ["llama-bench"])]:
            os.mkdir(cls.path(folder))
            for name in names:
                path = cls.write(f"{folder}/{name}", LLAMA_BENCH.encode())
                os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
            cls.programs[folder] = cls.path(f"{folder}/llama-bench")

    def rival(self, folder, *arguments):
        return ["bench", "rival", "--llama-bench", self.programs[folder], "--gguf", self.gguf, *self.SMALL, *arguments]

    def test_pairs(self):
        report = self.lathe.json(*self.rival("both", "--batch", "1,2", "--rival-args", "-fa 1", "--json"))
        metrics = {metric["name"]: metric for metric in report["metrics"]}
        self.assertEqual({name: metric["a"] for name, metric in metrics.items()},
                         {"prefill 8": [100, 100], "prefill 16": [100, 100], "decode 1": [10, 10], "decode 2": [10, 10]})
        for metric in metrics.values():
            self.assertEqual(len(metric["b"]), 2)
            self.assertTrue(metric["interval"][0] <= metric["ratio"] <= metric["interval"][1])
        self.assertEqual(sorted(run["arm"] for run in report["runs"]), ["a", "a", "b", "b"])
        self.assertEqual(report["not_compared"], [])
        with open(self.path("both/log"), encoding="utf-8") as log:
            asked = log.read().splitlines()
        weights = f"-m {self.gguf} -t 1"
        self.assertEqual(asked, [f"llama-bench {weights} -p 8,16 -n 0 -r 1 -o json -fa 1", f"llama-bench {weights} -p 0 -n 32 -d 8 -r 1 -o json -fa 1",
                                 f"llama-batched-bench {weights} -c 80 -npp 8 -ntg 32 -npl 2 --output-format jsonl -fa 1"] * 2)

    def test_page(self):
        page = self.lathe.good(*self.rival("one", "--batch", "1,2"))
        self.assertRegex(page, r"prefill 8 +100\.0")
        self.assertRegex(page, r"decode 1 +10\.0")
        self.assertTrue(re.search(r"not compared: decode 2: there is no llama-batched-bench", page), page)

    def refuse(self, code, words, *arguments):
        done = self.lathe.run(*arguments)
        said = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (code, b""), said)
        self.assertIn("error: ", said.rstrip("\n").rpartition("\n")[2])
        for word in words:
            self.assertIn(word, said)

    def test_refused(self):
        self.refuse(USAGE, ["--llama-bench"], "bench", "rival", "--gguf", self.gguf)
        self.refuse(USAGE, ["--gguf"], "bench", "rival", "--llama-bench", self.programs["one"])
        self.refuse(FAILURE, ["none.gguf", "lathe export"], "bench", "rival", "--llama-bench", self.programs["one"], "--gguf", self.path("none.gguf"))
        self.refuse(FAILURE, ["127", "expected llama-bench"], "bench", "rival", "--llama-bench", self.path("nothing"), "--gguf", self.gguf)
        self.refuse(FAILURE, ["--n-gen", "expected llama-bench"], "bench", "rival", "--llama-bench", "/bin/echo", "--gguf", self.gguf)
        self.refuse(FAILURE, ["2,3", "llama-batched-bench"], *self.rival("one", "--batch", "2,3"))
        self.refuse(FAILURE, ["lacks n_prompt"], *self.rival("one", "--batch", "1", "--rival-args", "BROKEN"))
        self.refuse(FAILURE, ["exit code 3"], *self.rival("one", "--batch", "1", "--rival-args", "DIES"))
        self.refuse(FAILURE, ["nowhere"], *self.rival("one", "--batch", "1"), self.path("nowhere"))


if __name__ == "__main__":
    clilib.Case.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
