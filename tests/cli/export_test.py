"""export --gguf: tokenizer, names and shapes as a reader of its own finds them; what is refused, and that nothing is left then.

Usage: export_test.py LATHE SOURCE
"""

import json
import os
import struct
import subprocess
import sys
import unittest

import clilib

USAGE, FAILURE = 2, 1
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY = 8, 9


class Gguf:
    """Keys, and tensors as {name: (shape, type, offset)}."""

    def __init__(self, path):
        with open(path, "rb") as file:
            self.data = file.read()
        self.at = 0
        magic, version, tensors, keys = struct.unpack("<4sIQQ", self.take(24))
        assert (magic, version) == (b"GGUF", 3)
        self.keys = {}
        for _ in range(keys):
            name = self.string()
            self.keys[name] = self.value(self.number("I"))
        self.tensors = {}
        for _ in range(tensors):
            name = self.string()
            shape = [self.number("Q") for _ in range(self.number("I"))][::-1]
            self.tensors[name] = (shape, self.number("I"), self.number("Q"))
        self.begin = (self.at + 31) // 32 * 32

    def take(self, count):
        self.at += count
        return self.data[self.at - count:self.at]

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def string(self):
        return self.take(self.number("Q")).decode()

    def value(self, kind):
        if kind == STRING:
            return self.string()
        if kind == ARRAY:
            of, count = self.number("I"), self.number("Q")
            return [self.value(of) for _ in range(count)]
        return self.number(SCALARS[kind])


class Export(clilib.Case):
    def refuse(self, code, words, *arguments):
        done = self.lathe.run("export", *arguments)
        said = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (code, b""), said)
        self.assertTrue(said.startswith("error: ") and said.count("\n") == 1, said)
        for word in words:
            self.assertIn(word, said)

    def read(self, *arguments):
        self.lathe.good("export", "--gguf", self.path("read.gguf"), "--force", *arguments)
        return Gguf(self.path("read.gguf"))

    def test_tokenizer(self):
        file = self.read()
        with open(os.path.join(self.lathe.builtin, "tokenizer.json"), encoding="utf-8") as handle:
            tokenizer = json.load(handle)
        names = {id: name for name, id in tokenizer["model"]["vocab"].items()}
        special = {added["id"] for added in tokenizer["added_tokens"] if added["special"]}
        user = {added["id"] for added in tokenizer["added_tokens"]} - special
        names.update({added["id"]: added["content"] for added in tokenizer["added_tokens"]})
        tokens, kinds = file.keys["tokenizer.ggml.tokens"], file.keys["tokenizer.ggml.token_type"]
        self.assertEqual(len(tokens), 3584)
        self.assertEqual(len(set(tokens)), 3584)
        for id, (token, kind) in enumerate(zip(tokens, kinds)):
            if id in names:
                self.assertEqual((token, kind), (names[id], 3 if id in special else 4 if id in user else 1))
            else:
                self.assertEqual((token, kind), (f"[PAD{id}]", 5))
        self.assertEqual(file.keys["tokenizer.ggml.merges"], [" ".join(merge) for merge in tokenizer["model"]["merges"]])
        ids = {name: id for id, name in names.items()}
        for key, name in [("bos", "[gMASK]"), ("eos", "<|endoftext|>"), ("eot", "<|user|>"), ("eom", "<|observation|>"), ("unknown", "<|endoftext|>"),
                          ("padding", "<|endoftext|>")]:
            self.assertEqual(file.keys[f"tokenizer.ggml.{key}_token_id"], ids[name])
        self.assertIs(file.keys["tokenizer.ggml.add_bos_token"], False)
        self.assertEqual((file.keys["tokenizer.ggml.model"], file.keys["tokenizer.ggml.pre"]), ("gpt2", "glm4"))
        with open(os.path.join(self.lathe.builtin, "chat_template.jinja"), encoding="utf-8") as handle:
            self.assertEqual(file.keys["tokenizer.chat_template"], handle.read())

    def test_types(self):
        numbers = {"f32": (0, 0), "f16": (1, 1), "bf16": (30, 32), "q8_0": (8, 7)}
        for name, (tensor, file_type) in numbers.items():
            file = self.read("--type", name)
            self.assertEqual(file.keys["general.file_type"], file_type)
            self.assertEqual(file.tensors["blk.0.attn_q.weight"][:2], ([512, 384], tensor))
            self.assertEqual(file.tensors["blk.2.ffn_gate_exps.weight"][:2], ([8, 128, 384], tensor))
            self.assertEqual(file.tensors["blk.3.attn_k_b.weight"][:2], ([4, 128, 128], tensor))
            self.assertEqual(file.tensors["blk.0.hc_attn_fn.weight"][:2], ([24, 1536], 0))
            self.assertEqual(file.tensors["blk.8.nextn.eh_proj.weight"][:2], ([384, 768], tensor))

    def test_report(self):
        out = self.path("report.gguf")
        report = self.lathe.json("export", "--gguf", out, "--type", "q8_0", "--json", "--no-vocab")
        self.assertEqual((report["bytes"], report["kept_as_f16"], report["type"]), (os.path.getsize(out), [], "q8_0"))
        file = Gguf(out)
        self.assertEqual((len(file.tensors), file.keys["tokenizer.ggml.model"]), (report["tensors"], "no_vocab"))

    def test_same_bytes_for_any_number_of_threads(self):
        files = []
        for threads in ("1", "3"):
            self.lathe.good("export", "--gguf", self.path("threads.gguf"), "--force", "--type", "q8_0", "-t", threads)
            with open(self.path("threads.gguf"), "rb") as handle:
                files.append(handle.read())
        self.assertEqual(files[0], files[1])

    def test_a_slice_has_a_token_for_every_row(self):
        model = self.path("slice")
        self.lathe.good("bench", "make-slice", model, "--config", os.path.join(self.lathe.builtin, "config.json"), "--experts", "2", "--layers", "1",
                        "--vocabulary", "4000", "--no-vision", "--no-draft")
        file = self.read(model)
        self.assertEqual(len(file.keys["tokenizer.ggml.tokens"]), 4000)
        self.assertEqual(file.tensors["token_embd.weight"][0], [4000, 384])

    def test_refused(self):
        out = self.path("refused.gguf")
        self.refuse(USAGE, ["--gguf"])
        self.refuse(USAGE, ["--type", "int4"], "--gguf", out, "--type", "int4")
        self.refuse(USAGE, ["--frobnicate"], "--gguf", out, "--frobnicate")
        self.refuse(FAILURE, ["there is no model"], self.path("none"), "--gguf", out)
        self.refuse(FAILURE, ["is a file"], os.path.join(self.lathe.builtin, "config.json"), "--gguf", out)
        self.refuse(USAGE, ["model", "outside"], "--gguf", os.path.join(self.lathe.builtin, "out.gguf"))
        self.refuse(FAILURE, ["nowhere"], "--gguf", self.path("nowhere/out.gguf"))
        there = self.write("there.gguf", b"mine")
        self.refuse(FAILURE, [there, "already", "--force"], "--gguf", there)
        with open(there, "rb") as handle:
            self.assertEqual(handle.read(), b"mine")
        other = clilib.copy_model(self.lathe.builtin, self.path("llama"), {"config.json": b'{"model_type": "llama"}'})
        self.refuse(FAILURE, ["model_type", "llama", "glm5_next"], other, "--gguf", out)
        bare = clilib.copy_model(self.lathe.builtin, self.path("bare"), without=("tokenizer.json",))
        self.refuse(FAILURE, ["tokenizer.json", "--no-vocab"], bare, "--gguf", out)
        self.lathe.good("export", bare, "--gguf", self.path("bare.gguf"), "--no-vocab")
        split = clilib.copy_model(self.lathe.builtin, self.path("split"), {"tokenizer.json": lambda text: text.replace("{1,3}", "{1,2}")})
        self.refuse(FAILURE, ["tokenizer.json", "GLM-4", "--no-vocab"], split, "--gguf", out)
        self.assertFalse(os.path.exists(out))

    def test_weights_that_are_no_numbers(self):
        def break_norm(tensors):
            name = next(name for name in tensors if name.endswith("layers.1.input_layernorm.weight"))
            kind, shape, data = tensors[name]
            tensors[name] = (kind, shape, data[:4] + b"\xc0\x7f" + data[6:])

        broken = clilib.copy_model(self.lathe.builtin, self.path("broken"), tensors=break_norm)
        self.refuse(FAILURE, ["blk.1.attn_norm.weight", "value 2 is nan"], broken, "--gguf", self.path("nan.gguf"))
        self.assertFalse(os.path.exists(self.path("nan.gguf")))

    def test_a_disk_that_fills_up(self):
        out = self.path("full.gguf")
        limited = f"ulimit -f 2000; exec '{self.lathe.program}' export --gguf '{out}'"
        done = subprocess.run(["sh", "-c", limited], capture_output=True, check=False, timeout=120, env=self.lathe.environment)
        self.assertEqual((done.returncode, done.stderr.decode()[:20]), (FAILURE, "error: cannot write "))
        self.assertFalse([name for name in os.listdir(self.folder.name) if name.startswith("full.gguf")])


if __name__ == "__main__":
    clilib.Case.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
