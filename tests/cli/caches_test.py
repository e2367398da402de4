"""--cache-dtype from outside: one text in every verb and place, the bytes that inspect foretells, bits that do not depend on the path, formats against each
other, and what is refused.

Usage: caches_test.py LATHE SOURCE
"""

import json
import sys
import unittest

import clilib

FULL = "balanced,state=fp16+replay"
MIX = "latent=int8,index=fp8,state=fp16,conv=bf16"


class Caches(clilib.Case):
    def refuse(self, code, words, *arguments, env=None):
        done = self.lathe.run(*arguments, env=env)
        said = done.stderr.decode(errors="replace")
        self.assertEqual((done.returncode, done.stdout), (code, b""), said)
        self.assertTrue(said.startswith("error: ") and said.count("\n") == 1, said)
        for word in words:
            self.assertIn(word, said)

    def inspect(self, *arguments, env=None):
        return self.lathe.json("inspect", "--json", "--context", "4096", *arguments, env=env)

    def test_one_text_from_every_place(self):
        self.write("caches.json", json.dumps({"engine": {"cache-dtype": MIX}}).encode())
        wanted = self.inspect("--cache-dtype", MIX)
        self.assertEqual(wanted["cache_formats"], MIX)
        for arguments, env in [(["--cache-dtype", "latent=int8", "--cache-dtype=index=fp8", "--cache-dtype", "state=fp16,conv=bf16"], None),
                               ([], {"LATHE_ENGINE_CACHE_DTYPE": MIX}), (["--settings", self.path("caches.json")], None),
                               (["--dtype", "float32", "--cache-dtype", MIX], None)]:
            out = self.inspect(*arguments, env=env)
            self.assertEqual((out["cache_formats"], out["cache_bytes"]), (wanted["cache_formats"], wanted["cache_bytes"]), arguments)
        self.assertEqual(self.inspect()["cache_formats"], "latent=bf16,index=bf16,state=fp32,conv=fp32")
        self.assertEqual(self.inspect("--dtype", "float32")["cache_formats"], "latent=fp32,index=fp32,state=fp32,conv=fp32")
        self.assertEqual(self.inspect("--cache-dtype", "index=fp32")["cache_formats"], "latent=bf16,index=fp32,state=fp32,conv=fp32")
        self.assertEqual(self.inspect("--cache-dtype", "plain")["cache_formats"], "latent=bf16,index=bf16,state=fp32,conv=bf16")

    def test_inspect_foretells_the_bytes(self):
        """Built-in model: 2 sparse layers of 128 latents and 64 index channels a pool of 4 and the draft layer; 6 linear layers of 4 heads of 128 x 128."""
        tokens = 4096
        for text, latent, key, state, window in [("", 256, 128, 65536, 4), (MIX, 132, 68, 32768, 2), ("plain", 256, 128, 65536, 2),
                                                 ("latent=fp8,index=fp32", 132, 256, 65536, 4)]:
            out = self.inspect(*(["--cache-dtype", text] if text else []))
            bytes_of = out["cache_bytes"]
            self.assertEqual((bytes_of["mla.latent"], bytes_of["draft.latent"]), (2 * tokens * latent, tokens * latent), text)
            self.assertEqual((bytes_of["index.keys"], bytes_of["draft.keys"]), (2 * tokens // 4 * key, tokens // 4 * key), text)
            self.assertEqual(bytes_of["kda.state"], 6 * 4 * state, text)
            self.assertEqual(bytes_of["kda.conv"], 6 * 3 * 3 * 4 * 128 * window, text)
            self.assertEqual(out["decode_step_bytes"]["kda_state"], 2 * 6 * 4 * state, text)
            self.assertEqual(bytes_of["total"], sum(value for name, value in bytes_of.items() if name != "total"))
        self.assertIn(MIX, self.lathe.good("inspect", "--cache-dtype", MIX))

    def logits(self, *arguments):
        ids = self.write("ids.json", json.dumps([(i * 37 + 11) % 500 for i in range(70)]).encode())
        out = self.path("logits.safetensors")
        self.lathe.good("logits", self.base, "--ids", ids, "--out", out, "--log-level", "error", *arguments)
        return clilib.read_tensors(out)["logits"][2]

    def test_bits_do_not_depend_on_the_path(self):
        seen = {self.logits()}
        for text in (MIX, "balanced", "latent=fp8"):
            whole = self.logits("--cache-dtype", text)
            for arguments in (["--chunks", "33,1,30"], ["--decode-from", "21"], ["--chunks", "7,5", "--decode-from", "40", "-t", "1"]):
                self.assertEqual(self.logits("--cache-dtype", text, *arguments), whole, arguments)
            self.assertNotIn(whole, seen, f"{text} changes nothing")
            seen.add(whole)

    def test_text_is_made_with_any_format(self):
        out = self.lathe.json("run", "-p", "What is 47 + 85?", "-n", "60", "--temp", "0", "--json", "--cache-dtype", "balanced")
        self.assertIn("132", out["text"])

    def test_two_formats_are_compared(self):
        few = ["--only", "heldout,add_2_digits", "--rows", "2", "--json"]
        report = self.lathe.json("eval", "--cache-dtype", "balanced", "--against", "--cache-dtype plain", *few)
        given = [run["settings"]["engine.cache-dtype"]["value"] for run in (report, report["against"])]
        self.assertEqual(given, ["balanced", "plain"])
        self.assertNotEqual(report["bits_per_byte"], report["against"]["bits_per_byte"])
        self.assertLess(abs(report["bits_per_byte"] / report["against"]["bits_per_byte"] - 1), 0.02)
        same = self.lathe.json("eval", "--cache-dtype", "latent=int8", "--against", "--cache-dtype latent=int8 --cache-dtype index=bf16", *few)
        self.assertEqual(same["bits_per_byte"], same["against"]["bits_per_byte"])

    def test_presets_say_what_nobody_else_says(self):
        formats = {name: self.inspect("--cache-dtype", name)["cache_formats"] for name in ("plain", FULL)}
        for preset, mix in (("plain", "plain"), ("full", FULL)):
            self.assertEqual(self.inspect("--preset", preset)["cache_formats"], formats[mix])
            self.assertEqual(self.inspect("--preset", preset, "--dtype", "float32")["cache_formats"], formats[mix])
        self.assertEqual(self.inspect("--preset", "none"), self.inspect())
        self.assertEqual(self.inspect("--preset", "full", "--cache-dtype", "plain")["cache_formats"], formats["plain"])
        self.assertEqual(self.inspect("--preset", "full", env={"LATHE_ENGINE_CACHE_DTYPE": "plain"})["cache_formats"], formats["plain"])
        shown = self.lathe.json("config", "show", "--preset", "full")["engine.cache-dtype"]
        self.assertEqual((shown["value"], shown["place"]), (FULL, "preset full"))
        self.refuse(2, ["preset", "'best'", "full"], "inspect", "--preset", "best")

    SHORT = ["--rounds", "2", "--prompt", "16", "--batch", "1,2", "--decode-context", "8", "--memory", "1G"]

    def test_a_ladder_has_the_rungs_of_the_presets(self):
        out = self.lathe.json("bench", "ladder", "--json", "--rows", "0", *self.SHORT)
        names = [rung["name"] for rung in out["rungs"]]
        self.assertEqual((names[0], names[-1]), ("plain", "full"))
        self.assertEqual(out["rungs"][0]["cache_formats"], self.inspect("--preset", "plain")["cache_formats"])
        self.assertEqual(out["rungs"][-1]["cache_formats"], self.inspect("--preset", "full")["cache_formats"])
        for rung in out["rungs"]:
            self.assertEqual([figure["name"] for figure in rung["figures"]], ["prefill 16", "decode 1", "decode 2"])
            self.assertTrue(all(len(figure["rates"]) == 2 and figure["median"] > 0 for figure in rung["figures"]))
            self.assertEqual(rung["largest_batch"] * rung["sequence_bytes"] + rung["weight_bytes"] < 1 << 30, True)
            self.assertNotIn("accuracy", rung)
        self.assertGreater(out["rungs"][-1]["largest_batch"], out["rungs"][0]["largest_batch"])

    def test_a_ladder_of_ones_own(self):
        page = self.lathe.good("bench", "ladder", "--rows", "1", *self.SHORT, "--rung", "wide=", "--rung", "half states=--cache-dtype state=fp16", "--rung", "exact=--dtype float32")
        for words in ("half states", "decode 2", "largest within 1.0 GiB", "KL"):
            self.assertIn(words, page)
        for rung, words in [("=--dtype float32", "NAME=FLAGS"), ("a=--frobnicate", "--frobnicate"), ("a=--cache-dtype latent=int4", "'int4'")]:
            self.refuse(2, ["--rung", words], "bench", "ladder", "--rung", rung)
        self.refuse(2, ["--memory", "'much'"], "bench", "ladder", "--memory", "much")
        self.refuse(1, ["--rung 'a=/nowhere", "there is no model"], "bench", "ladder", *self.SHORT, "--rung", "a=/nowhere --isa avx2")

    def test_fallbacks_are_listed_or_refused(self):
        kernels = self.inspect("--cache-dtype", MIX)["engine"]["kernels"]
        lacking = [kernel for kernel in kernels if kernel["route"] != "native"]
        if lacking:
            self.refuse(1, ["--no-fallback", f"with caches {MIX}"], "inspect", "--no-fallback", "--cache-dtype", MIX)
        else:
            self.lathe.good("inspect", "--no-fallback", "--cache-dtype", MIX)

    def test_what_is_wrong_is_told(self):
        for text, words in [("latent=int4", ["'latent'", "'int4'", "fp32, bf16, fp8 or int8"]), ("state=bf16", ["'state'", "'bf16'", "fp16+replay"]),
                            ("state=int8", ["'state'", "int8+replay"]), ("conv=int8", ["'conv'", "fp32 or bf16"]), ("int8", ["'int8'", "balanced, plain"]),
                            ("latent=int8,latent=fp8", ["'latent'", "twice"]), ("conv=bf16,plain", ["'plain'", "first"]), ("latent=int8,", ["comma"])]:
            for verb in (["run", "-p", "hi"], ["inspect"], ["eval"], ["selftest"], ["bench", "model"]):
                self.refuse(2, ["--cache-dtype", *words], *verb, "--cache-dtype", text)
        self.refuse(2, ["--cache-dtype", "twice"], "inspect", "--cache-dtype", "latent=int8", "--cache-dtype", "latent=fp8")
        self.refuse(2, ["--cache-dtype", "is empty"], "inspect", "--cache-dtype", "")
        self.refuse(2, ["--cache-dtype", "'nope'"], "inspect", env={"LATHE_ENGINE_CACHE_DTYPE": "nope"})


if __name__ == "__main__":
    Caches.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
