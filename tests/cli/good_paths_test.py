"""What the verbs must give: text, JSON, logits files, totals, self-test.

Usage: good_paths_test.py LATHE SOURCE
"""

import json
import math
import os
import struct
import sys
import tempfile
import unittest

import clilib


def floats(tensor):
    return struct.unpack(f"<{len(tensor[2]) // 4}f", tensor[2])


class GoodPaths(unittest.TestCase):
    lathe = None  # set by main

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lathe_cli_")  # pylint: disable=consider-using-with
        cls.base = os.path.join(cls.lathe.data, "golden", "base")
        with open(os.path.join(cls.lathe.data, "golden", "tiny", "golden.json"), encoding="utf-8") as file:
            cls.golden = {case["name"]: dict(case, number=i) for i, case in enumerate(json.load(file))}

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def ids_file(self, ids):
        with open(self.path("ids.json"), "w", encoding="utf-8") as file:
            json.dump(ids, file)
        return self.path("ids.json")

    def test_help(self):
        self.assertIn("run", self.lathe.good("--help"))
        for verb in ("run", "logits", "inspect", "eval", "selftest", "bench"):
            self.assertIn("lathe", self.lathe.good(verb, "--help"))
        self.assertTrue(self.lathe.good("--version").startswith("lathe "))
        for words in ("Exit codes", "LATHE_BUILTIN", "--settings", "config schema"):
            self.assertIn(words, self.lathe.good("--help"))
        self.assertIn("each set; 0: all", self.lathe.good("eval", "--help"))
        self.assertNotIn("default )", self.lathe.good("run", "--help"))

    def test_drafts_change_no_text(self):
        common = ["run", "-p", "Tell me a story about a fox.", "-n", "60", "--json", "--seed", "5"]
        for more in (["--temp", "0"], ["--temp", "0.8"], ["--temp", "0", "--stop", "the"]):
            plain = self.lathe.json(*common, *more)
            self.assertNotIn("spec_decode", plain)
            for drafts in (["--draft-tokens", "auto"], ["--draft-max", "3", "--draft-health"]):
                out = self.lathe.json(*common, *more, *drafts)
                for key in ("text", "reasoning", "finish_reason", "usage"):
                    self.assertEqual(out[key], plain[key], (more, drafts, key))
                counts = out["spec_decode"]
                self.assertEqual(sum(counts["num_accepted_tokens_per_pos"]), counts["num_accepted_tokens"])
                self.assertLess(counts["num_accepted_tokens"], out["usage"]["completion_tokens"])
            self.assertEqual(counts["num_draft_tokens"], out["timings"]["draft_n"])  # with three always, there are some
        self.assertEqual(self.lathe.run("run", "-p", "hi", "--draft-tokens", "9").returncode, 2)

    def test_greedy_is_the_golden_text(self):
        for name in ("story", "opp", "fact"):
            case = self.golden[name]
            wanted = case["fp8"]["greedy_text"]
            given = self.lathe.json("run", "--raw", "-p", case["prompt_text"], "--dtype", "float32", "--temperature", "0", "--json", "-n", str(len(case["fp8"]["greedy_ids"])))
            reasoning, closed, answer = wanted.partition("</think>")
            if not closed:
                reasoning, answer = "", wanted
            self.assertEqual((given["reasoning"], given["text"]), (reasoning, answer.removesuffix("<|user|>")), name)
            self.assertEqual(given["usage"]["prompt_tokens"], len(case["ids"]))
            self.assertEqual(given["finish_reason"], "stop" if wanted.endswith("<|user|>") else "length")

    def test_json(self):
        out = self.lathe.json("run", "-p", "hi", "--json", "--temp", "0", "-n", "4")
        self.assertEqual(set(out["usage"]), {"prompt_tokens", "completion_tokens", "total_tokens"})
        self.assertEqual(out["usage"]["completion_tokens"], 4)
        self.assertEqual(out["usage"]["total_tokens"], out["usage"]["prompt_tokens"] + 4)
        for key in ("load_ms", "prompt_ms", "prompt_per_second", "predicted_ms", "predicted_per_second"):
            self.assertGreaterEqual(out["timings"][key], 0)
        self.assertEqual(out["finish_reason"], "length")

    def test_prompt_from_everywhere(self):
        with open(self.path("prompt.txt"), "w", encoding="utf-8") as file:
            file.write("Say hello.")
        common = ["--temp", "0", "-n", "12"]
        texts = {
            self.lathe.good("run", "-p", "Say hello.", *common),
            self.lathe.good("run", *common, stdin=b"Say hello."),
            self.lathe.good("run", "-f", "-", *common, stdin=b"Say hello."),
            self.lathe.good("run", "-f", self.path("prompt.txt"), *common),
            self.lathe.good("run", "-m", self.lathe.builtin, "-c", "512", "-p", "Say hello.", *common),
        }
        self.assertEqual(len(texts), 1, texts)

    def test_same_seed_same_text(self):
        def text(seed, *more):
            return self.lathe.good("run", "--raw", "-p", "Once upon a time", "--temp", "1", "--seed", seed, "-n", "24", *more)

        first = text("7", "-t", "1")
        self.assertEqual(first, text("7", "-t", "2"))
        self.assertEqual(first, text("7", "-t", "3", "--batch-tokens", "1"))
        self.assertNotEqual(first, text("8"))

    def test_stop_strings_are_never_shown(self):
        case = self.golden["story"]
        whole = case["fp8"]["greedy_text"]
        stop = whole[20:29]
        common = ["run", "--raw", "-p", case["prompt_text"], "--dtype", "float32", "--temp", "0", "-n", "48", "--stop", "no such text", "--stop", stop]
        self.assertEqual(self.lathe.good(*common).rstrip("\n"), whole[:20])
        out = self.lathe.json(*common, "--json")
        self.assertEqual((out["text"], out["finish_reason"]), (whole[:20], "stop"))

    def test_logit_bias(self):
        case = self.golden["story"]
        chosen = case["fp8"]["greedy_ids"][0]
        common = ["run", "--raw", "-p", case["prompt_text"], "--dtype", "float32", "--temp", "0", "-n", "1", "--json"]
        free = self.lathe.json(*common)["text"]
        self.assertTrue(case["fp8"]["greedy_text"].startswith(free))
        self.assertNotEqual(self.lathe.json(*common, "--logit-bias", f"{chosen}=-100")["text"], free)
        wanted = case["fp8"]["greedy_ids"][5]
        self.assertIn(self.lathe.json(*common, "--logit-bias", f"{wanted}=100")["text"], case["fp8"]["greedy_text"][1:])

    def test_pictures(self):
        case = self.golden["apple"]
        picture = os.path.join(self.lathe.data, "golden", "tiny", case["images"][0])
        out = self.lathe.json("run", "-p", case["prompt"] if isinstance(case["prompt"], str) else "What is this?", "--image", picture, "--dtype", "float32", "--temp", "0", "-n", "24", "--json")
        self.assertIn("apple", out["text"])
        self.assertGreaterEqual(out["usage"]["prompt_tokens"], 16)

    def test_trace(self):
        self.lathe.good("run", "-p", "hi", "--temp", "0", "-n", "3", "-t", "2", "--trace", self.path("trace.json"))
        with open(self.path("trace.json"), encoding="utf-8") as file:
            trace = json.load(file)
        events = trace["traceEvents"] if isinstance(trace, dict) else trace
        spans = [e for e in events if e["ph"] == "X"]
        self.assertTrue(all(e["dur"] >= 0 and "ts" in e and "pid" in e and "tid" in e for e in spans))
        self.assertEqual({e["cat"] for e in spans} - {"lock"}, {"op", "piece", "wait"})
        # On a busy machine the second worker may get nothing to do, and then never idles between two pieces.
        self.assertLessEqual({e["tid"] for e in spans}, {0, 1})
        self.assertIn("barrier", {e["name"] for e in spans if e["cat"] == "wait" and e["tid"] == 0})
        self.assertEqual({(e["cat"], e["name"]) for e in spans if e["tid"] == 1 and e["cat"] == "wait"} - {("wait", "idle")}, set())
        for event in spans:  # ready, start, end
            self.assertLessEqual(event["args"]["ready_us"], event["ts"] + 0.001, event)
            self.assertAlmostEqual(event["args"]["wait_us"], event["ts"] - event["args"]["ready_us"], delta=0.002)
        for kinds, worker in ((("op",), 0), (("piece", "wait"), 0), (("piece", "wait"), 1)):
            row = sorted((e for e in spans if e["cat"] in kinds and e["tid"] == worker), key=lambda e: e["ts"])
            self.assertTrue(all(a["ts"] + a["dur"] <= b["ts"] + 0.002 for a, b in zip(row, row[1:])), f"{kinds} of worker {worker} overlap")
        ops = [e for e in spans if e["cat"] == "op"]
        self.assertTrue(all(e["args"]["layer"] >= 0 for e in ops if e["name"] == "kda_recurrence"))
        names = " ".join({e["name"] for e in spans})
        for op in ("matmul", "kda_recurrence", "mla_attend", "moe"):
            self.assertIn(op, names)

    def test_settings(self):
        schema = {s["name"]: s for s in self.lathe.json("config", "schema", "--json")["settings"]}
        for name in ("engine.model", "engine.dtype", "engine.threads", "engine.isa", "engine.kernel", "engine.no-fallback", "engine.context", "engine.batch-tokens",
                     "sampling.temperature", "sampling.top-p", "sampling.top-k", "sampling.min-p", "sampling.seed", "sampling.repetition-penalty",
                     "sampling.presence-penalty", "sampling.frequency-penalty", "sampling.max-tokens", "log.level"):
            self.assertIn(name, schema)
        help_text = self.lathe.good("run", "--help")
        for setting in schema.values():
            for key in ("name", "type", "default", "cost", "help", "flag", "environment"):
                self.assertIn(key, setting)
            if setting["name"].startswith(("engine.", "sampling.", "log.")):
                self.assertIn(setting["flag"], help_text)
            # All of these can stand in generation_config.json, and the help says so.
            self.assertEqual("the model's own default" in setting["help"], setting["name"].startswith("sampling.") and setting["name"] != "sampling.seed", setting)
        shown = json.dumps(self.lathe.json("config", "show", "--temp", "0.5", env={"LATHE_ENGINE_THREADS": "3"}))
        self.assertIn("0.5", shown)
        self.assertIn("environment", shown)

    def test_empty_variables_are_unset(self):
        wanted = self.lathe.json("inspect", "--json")["total"]
        self.assertEqual(self.lathe.json("inspect", "--json", env={"LATHE_BUILTIN": "", "LATHE_ISA": ""})["total"], wanted)

    def test_nothing_but_results_without_a_terminal(self):
        """Work that shows progress on a terminal is silent on a pipe."""
        command = ["logits", self.lathe.builtin, "--ids", self.ids_file([i % 500 for i in range(6000)]), "--out", self.path("l.safetensors"), "--at=-1",
                   "--dtype", "float32", "-t", "1", "--batch-tokens", "64"]
        done = self.lathe.run(*command)
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, b"", b""))
        self.assertIn(b"computing logits", self.lathe.on_terminal(*command))
        for arguments in (["run", "-p", "hi", "-n", "2", "--temp", "0"], ["inspect"], ["eval", "--only", "add_2_digits", "--every", "1000"]):
            done = self.lathe.run(*arguments)
            self.assertEqual((done.returncode, done.stderr), (0, b""), arguments)
            self.assertNotIn(b"\x1b", done.stdout, "no colours either")

    def test_inspect_builtin(self):
        tensors = clilib.read_tensors(os.path.join(self.lathe.builtin, "model.safetensors"))
        total = self.lathe.json("inspect", "--json")["total"]
        self.assertEqual(total["tensors"], len(tensors))
        self.assertEqual(total["parameters"], sum(math.prod(shape) for name, (_, shape, _) in tensors.items() if not name.endswith("_scale_inv")))
        self.assertEqual(total["bytes"], sum(len(data) for _, _, data in tensors.values()))
        page = self.lathe.good("inspect", "--context", "4096", "--batch", "2")
        for words in ("Weights by kind", "decode step of 2 sequences", "a prompt of 4,096 tokens that is read in chunks of 512", "instruction set", "threads", "Kernels"):
            self.assertIn(words, page)

    def test_threads_on_one_processor(self):
        first = min(os.sched_getaffinity(0))
        for flags in (["--cpu-range", str(first)], ["--cpu-mask", hex(1 << first)]):
            machine = self.lathe.json("inspect", "--json", *flags)["machine"]
            self.assertEqual((machine["threads"], machine["topology"]["usable_processors"]), (1, 1))
            self.assertEqual([place["processors"] for place in machine["topology"]["places"]], [str(first)])
        machine = self.lathe.json("inspect", "--json", "--numa", "off")["machine"]
        self.assertTrue(all(place["processors"] == "any" for place in machine["topology"]["places"]))
        self.assertGreaterEqual(machine["topology"]["processors"], len(os.sched_getaffinity(0)))
        self.assertIn(machine["threads_reason"], self.lathe.good("inspect", "--numa", "off"))

    def test_inspect_published(self):
        os.makedirs(self.path("published"), exist_ok=True)
        file_name = os.path.join(self.path("published"), "config.json")
        with open(file_name, "w", encoding="utf-8") as file:
            json.dump(clilib.published_config(), file)
        for model in (file_name, self.path("published")):
            total = self.lathe.json("inspect", model, "--json", "--log-level", "error")["total"]
            self.assertEqual((total["parameters"], total["bytes"], total["tensors"]), (321_323_031_390, 328_326_771_576, 76_108))
        out = self.lathe.json("inspect", file_name, "--json", "--log-level", "error", "-t", "3", "--isa", "scalar", "-c", "1048576", "-b", "256")
        self.assertEqual((out["context"], out["weights"], out["prefill_token_bytes"]["chunk"]), (1048576, False, 256))
        self.assertEqual((out["machine"]["isa"], out["machine"]["threads"]), ("scalar", 3))
        self.assertEqual(out["machine"]["isa_available"][0], "scalar")
        self.assertIn("as asked for", out["machine"]["threads_reason"])
        self.assertTrue(all(k["kernel"] and k["reason"] and k["sites"] >= 1 for k in out["engine"]["kernels"]))
        self.assertEqual({k["kernel"] for k in out["engine"]["kernels"]}, {"scalar"})
        # Bytes and FLOPs per token of both phases. What is fixed is read once per chunk.
        self.assertAlmostEqual(out["prefill_token_bytes"]["fixed_weights"] * 256, 13.957e9 - 1.2688e9, delta=0.001e9)
        self.assertAlmostEqual(out["decode_step_bytes"]["fixed_weights"], 13.957e9, delta=0.001e9)
        self.assertGreater(out["flops_decode"]["per_token"], out["flops_prefill"]["per_token"])

    def logits(self, model, ids, *arguments):
        """Tensors of the file that logits writes, and its bytes."""
        out = self.path("logits.safetensors")
        self.lathe.good("logits", model, "--ids", self.ids_file(ids), "--out", out, "--log-level", "error", *arguments)
        with open(out, "rb") as file:
            data = file.read()
        tensors = clilib.read_tensors(out)
        os.remove(out)
        return tensors, data

    def test_logits_do_not_depend_on_the_path(self):
        ids = [(i * 37 + 11) % 500 for i in range(70)]
        for dtype in ("float32", "bfloat16"):
            tensors, whole = self.logits(self.base, ids, "--dtype", dtype)
            self.assertEqual(tensors["logits"][:2], ("F32", [70, 512]))
            for arguments in (["--chunks", "33,1,30"], ["--decode-from", "21"], ["--chunks", "7,5", "--decode-from", "40", "-t", "1"], ["--batch-tokens", "16"]):
                self.assertEqual(self.logits(self.base, ids, "--dtype", dtype, *arguments)[1], whole, arguments)
            some = self.logits(self.base, ids, "--dtype", dtype, "--at", "3,-1")[0]["logits"]
            row = 512 * 4
            self.assertEqual(some[1], [2, 512])
            self.assertEqual(some[2], tensors["logits"][2][3 * row:4 * row] + tensors["logits"][2][-row:])
        self.assertEqual(self.logits(self.base, ids, "--at=-1")[0]["logits"][1], [1, 512])

    def test_logits_are_golden(self):
        golden = clilib.read_tensors(os.path.join(self.lathe.data, "golden", "base.safetensors"))
        ids = list(struct.unpack("<17q", golden["ids.3"][2]))
        given = floats(self.logits(self.base, ids, "--dtype", "float32")[0]["logits"])
        wanted = floats(golden["logits.3"])
        self.assertEqual(len(given), len(wanted))
        self.assertLess(max(abs(a - b) for a, b in zip(given, wanted)), 1e-3)

    def test_logits_with_draft(self):
        tensors = self.logits(self.lathe.builtin, self.golden["chat"]["ids"], "--dtype", "float32", "--mtp")[0]
        self.assertEqual(tensors["mtp_logits"][1], tensors["logits"][1])

    def test_logits_with_pixels(self):
        golden = clilib.read_tensors(os.path.join(self.lathe.data, "golden", "base.safetensors"))
        ids = list(struct.unpack(f"<{len(golden['image.0.ids'][2]) // 8}q", golden["image.0.ids"][2]))
        for rank in (1, 2):
            dtype, shape, data = golden["image.0.grid"]
            clilib.write_tensors(self.path("pixels.safetensors"), {"grid": (dtype, shape if rank == 1 else [1, 3], data), "pixel_values": golden["image.0.pixels"]})
            given = floats(self.logits(self.base, ids, "--dtype", "float32", "--pixels", self.path("pixels.safetensors"))[0]["logits"])
            wanted = floats(golden["image.0.logits"])
            self.assertLess(max(abs(a - b) for a, b in zip(given, wanted)), 1e-3)


class Selftest(unittest.TestCase):
    def test_selftest(self):
        out = GoodPaths.lathe.json("selftest", "--json")
        self.assertTrue(out["passed"] and out["rows"] and all(row["passed"] for row in out["rows"]), out)
        for row in out["rows"]:
            self.assertEqual({"name", "compared", "worst", "budget", "passed"} - set(row), set())


if __name__ == "__main__":
    GoodPaths.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
