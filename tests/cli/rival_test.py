"""bench rival with programs that stand in for llama.cpp's: what they are asked, what their figures become, what is refused before anything runs.

Usage: rival_test.py LATHE SOURCE
"""

import http.server
import json
import os
import re
import stat
import sys
import threading
import time
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


class LlamaServer(http.server.BaseHTTPRequestHandler):
    """Reads 1,000 tokens a second, by its own account, and writes one each 5 ms."""

    protocol_version = "HTTP/1.1"
    props = {"total_slots": 4, "default_generation_settings": {"n_ctx": 256}}
    asked = []
    broken = ""

    def log_message(self, *_):
        pass

    def answer(self, value, status=200):
        body = value if isinstance(value, bytes) else json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.broken == self.path:
            self.answer({"error": "loading"}, 503)
        elif self.path == "/props":
            self.answer(self.props)
        elif self.path == "/v1/models":
            self.answer({"data": [{"id": "x", "meta": {"n_vocab": 100}}]})
        else:
            self.answer({"status": "ok"})

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(request)
        prompt = len(request["prompt"])
        if self.broken == "short":
            prompt -= 1
        if not request["stream"]:
            self.answer({"content": "", "timings": {"prompt_n": prompt, "prompt_ms": float(prompt)}})
            return
        self.send_response(200)
        self.send_header("Connection", "close")
        self.end_headers()
        for i in range(request["n_predict"]):
            time.sleep(0.005)
            self.wfile.write(f'data: {{"index":0,"content":"a{i}","stop":false}}\n\n'.encode())
        self.wfile.write(b'data: {"content":"","stop":true}\n\n' if self.broken != "stream" else b"data: broken\n\n")


class RivalServer(clilib.Case):
    SMALL = ["--prompt", "8,16", "--decode-context", "8", "--samples", "1", "--pairs", "2", "-t", "1"]

    def setUp(self):
        self.handler = type("Handler", (LlamaServer,), {"asked": []})
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self.handler)
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"

    def tearDown(self):
        self.server.shutdown()
        self.server.server_close()

    def test_pairs(self):
        report = self.lathe.json("bench", "rival", "--server", self.url, *self.SMALL, "--batch", "1,3,8", "--json")
        rates = {metric["name"]: metric["a"] for metric in report["metrics"]}
        self.assertEqual(list(rates), ["decode 1", "decode 3", "prefill 16", "prefill 8"])
        for name in ("prefill 8", "prefill 16"):
            for rate in rates[name]:
                self.assertAlmostEqual(rate, 1000)
        for name, sequences in (("decode 1", 1), ("decode 3", 3)):
            for rate in rates[name]:
                self.assertTrue(sequences * 10 < rate < sequences * 210, rates)
        self.assertEqual((report["server"], report["not_compared"]), (self.url, ["decode 8: the server answers 4 at a time"]))
        asked = self.handler.asked
        self.assertEqual(sorted((len(r["prompt"]), r["n_predict"]) for r in asked), sorted(2 * [(8, 1), (16, 1), (8, 34), (8, 38), (8, 38), (8, 38)]))
        self.assertTrue(all(r["ignore_eos"] and not r["cache_prompt"] and min(r["prompt"]) > 0 and max(r["prompt"]) < 100 for r in asked))
        self.assertEqual(len({json.dumps(r["prompt"]) for r in asked}), len(asked), "a prompt was sent twice")

    def refuse(self, code, words, *arguments):
        done = self.lathe.run("bench", "rival", *arguments)
        said = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (code, b""), said)
        for word in ["error: ", *words]:
            self.assertIn(word, said.rstrip("\n").rpartition("\n")[2])

    def test_refused(self):
        self.refuse(USAGE, ["--server"], *self.SMALL)
        self.refuse(USAGE, ["--server", "--gguf"], "--server", self.url, "--gguf", "x")
        self.refuse(USAGE, ["https://x", "http://HOST"], "--server", "https://x", *self.SMALL)
        self.refuse(FAILURE, ["127.0.0.1:1"], "--server", "http://127.0.0.1:1", *self.SMALL)
        self.refuse(FAILURE, ["decode 1", "256 tokens"], "--server", self.url, "--prompt", "8", "--decode-context", "250", "--batch", "1")
        for broken, words in [("/health", ["/health", "503", "loading"]), ("/props", ["/props", "503"]), ("short", ["7 tokens", "prompt of 8"]), ("stream", ["/completion"])]:
            self.handler.broken = broken
            self.refuse(FAILURE, words, "--server", self.url, *self.SMALL, "--batch", "1")
        self.handler.broken, self.handler.props = "", {"total_slots": 4}
        self.refuse(FAILURE, ["/props", "n_ctx"], "--server", self.url, *self.SMALL, "--batch", "1")


class RivalProducts(clilib.Case):
    def test_onednn(self):
        if not os.path.exists(os.path.join(os.path.dirname(self.lathe.program), "lathe_onednn.so")):
            done = self.lathe.run("bench", "rival", "--onednn")
            self.assertEqual((done.returncode, done.stdout), (FAILURE, b""), done.stderr)
            self.assertIn(b"libdnnl-dev", done.stderr)
            self.skipTest("this build has no module of oneDNN")
        report = self.lathe.json("bench", "rival", "--onednn", "--tokens", "1,3", "--pairs", "2", "-t", "1", "--json")
        self.assertTrue(report["a"].startswith("oneDNN "), report["a"])
        self.assertEqual([p["name"] for p in report["products"][::2]], [f"{kind} {size}" for kind in ("int8", "bf16") for size in ("8192x4096", "4096x8192", "24576x4096")])
        for product in report["products"]:
            self.assertTrue(len(product["a_calls_per_second"]) == len(product["b_calls_per_second"]) == 2 and min(product["a_calls_per_second"] + product["b_calls_per_second"]) > 0, product)
            self.assertTrue(product["interval"][0] <= product["ratio"] <= product["interval"][1], product)

    def test_alone(self):
        done = self.lathe.run("bench", "rival", "--onednn", "--server", "http://127.0.0.1:1")
        self.assertEqual((done.returncode, done.stdout), (USAGE, b""), done.stderr)
        self.assertIn(b"--onednn", done.stderr)


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
