"""Files that hold what they should not: weights and pictures that are no numbers, JSON that is none, templates that fail, reports and evaluation rows
that were damaged. Each is refused with exit code 1 and a sentence that names the file and the place; what a flag asks in vain has exit code 2.

Usage: damaged_test.py LATHE SOURCE
"""

import json
import os
import struct
import sys
import unittest

import clilib

USAGE, FAILURE = 2, 1


class Damaged(clilib.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ids = cls.write("ids.json", json.dumps(list(range(8))).encode())
        cls.out = cls.path("out.safetensors")

    def refuse(self, code, words, *arguments):
        """One sentence, nothing on stdout."""
        done = self.lathe.run(*arguments, "--log-level", "error")
        said = done.stderr.decode(errors="replace")
        place = f"lathe {' '.join(arguments)}: {said}"
        self.assertEqual(done.returncode, code, place)
        self.assertEqual(done.stdout, b"", place)
        last = said.rstrip("\n").rpartition("\n")[2]
        self.assertTrue(last.startswith("error: "), place)
        for word in words:
            self.assertIn(word, last, place)

    def copy(self, what, change=None, tensors=None, without=(), source=None):
        return clilib.copy_model(source or self.lathe.builtin, self.path(what), change=change, tensors=tensors, without=without)

    def refuse_logits(self, code, words, model, *arguments):
        self.refuse(code, words, "logits", model, "--ids", self.ids, "--out", self.out, *arguments)
        self.assertFalse(os.path.exists(self.out))

    # Numbers that are none.

    def test_weights_that_are_not_finite(self):
        def break_norm(tensors):
            name = next(name for name in tensors if name.endswith("language_model.norm.weight"))
            dtype, shape, data = tensors[name]
            self.assertEqual(dtype, "BF16")
            tensors[name] = (dtype, shape, b"\xc0\x7f" + data[2:])

        model = self.copy("nan_weights", tensors=break_norm)
        self.refuse_logits(FAILURE, ["logits of position 0 are not finite", "token 0", "nan"], model)
        self.refuse(FAILURE, ["heldout.jsonl line 1", "logits of position 0 are not finite"], "eval", model, "--only", "heldout", "--rows", "1")
        self.refuse(FAILURE, [f"the model {model}: the logits are not finite", "token 0"], "run", model, "-p", "hi")
        self.refuse(FAILURE, ["logits of position 7 are not finite"], "bench", "model", model, "--samples-only", "--samples", "1", "--prompt", "8", "--batch", "1")

    def test_scales_that_are_none(self):
        name = "model.language_model.layers.0.mlp.down_proj.weight_scale_inv"
        for value in (-1.0, float("nan"), float("inf")):

            def edit(tensors, value=value):
                dtype, shape, data = tensors[name]
                tensors[name] = (dtype, shape, struct.pack("<f", value) + data[4:])

            self.refuse_logits(FAILURE, [name.removesuffix("_scale_inv"), f"has the scale {value:g} at [0, 0]"], self.copy(f"scale{value}", tensors=edit))

    def test_pictures_that_are_not_finite(self):
        with open(os.path.join(self.lathe.builtin, "config.json"), encoding="utf-8") as file:
            vision = json.load(file)["vision_config"]
        values = vision.get("in_channels", 3) * vision["temporal_patch_size"] * vision["patch_size"] ** 2
        patches = [0.0] * (4 * values)
        patches[values + 7] = float("nan")
        pixels = self.path("pixels.safetensors")
        clilib.write_tensors(pixels, {"grid": ("I64", [1, 3], struct.pack("<3q", 1, 2, 2)), "pixel_values": ("F32", [4, values], struct.pack(f"<{4 * values}f", *patches))})
        self.refuse_logits(FAILURE, ["pixels.safetensors", "pixel_values[1, 7] is nan"], self.lathe.builtin, "--pixels", pixels)

    # Flags of logits and bench.

    def test_pieces_beyond_the_ids(self):
        self.refuse_logits(USAGE, ["--chunks '99'", "8 ids"], self.base, "--chunks", "99")
        self.refuse_logits(USAGE, ["--chunks '3,5,1'", "8 ids"], self.base, "--chunks", "3,5,1")
        self.refuse_logits(USAGE, ["--chunks '3,3'", "--decode-from 5"], self.base, "--chunks", "3,3", "--decode-from", "5")
        self.refuse_logits(USAGE, ["--decode-from is 9", "0 to 7"], self.base, "--decode-from", "9")
        many = self.write("many_ids.json", json.dumps([i % 512 for i in range(64)]).encode())
        self.lathe.good("logits", self.base, "--log-level", "error", "--ids", many, "--out", self.path("many.safetensors"), "--chunks", "33,1,30")

    def test_benchmarks_that_cannot_be(self):
        self.refuse(USAGE, ["batch of 100000000", "1 to 512"], "bench", "model", "--check", "--batch", "100000000")
        self.refuse(USAGE, ["prompt of 999999999999"], "bench", "model", "--prompt", "999999999999")
        self.refuse(USAGE, ["'foo'"], "bench", "ops", "--op", "foo")
        self.refuse(USAGE, ["999999999999", "65536"], "bench", "ops", "--tokens", "999999999999")

    def test_report_of_an_arm(self):
        script = self.write("arm.sh", b'#!/bin/sh\ncase "$*" in *--help*) echo usage;; *) echo "{";; esac\n')
        os.chmod(script, 0o755)
        self.refuse(FAILURE, ["output of", "JSON line"], "bench", "ab", "--pairs", "2", "--a", script, "--b", script)

    # Configs.

    def test_model_type(self):
        for what, config, words in [("type_number", b'{"model_type": 5}', ["model_type is 5"]), ("type_array", b"[]", ["is an array", "object"]),
                                    ("type_none", b"{}", ["model_type is missing"]), ("type_broken", b"{", ["JSON line 1"])]:
            self.refuse_logits(FAILURE, [f"{what}/config.json", *words], self.copy(what, change={"config.json": config}, source=self.base))

    def test_generation_config(self):
        for i, (words, config) in enumerate([(["temperature is 1000"], b'{"temperature": 1000}'), (["temperature is 1e-09"], b'{"temperature": 1e-9}'),
                                             (["top_p is 0"], b'{"top_p": 0}'), (["min_p is 1"], b'{"min_p": 1}'), (["repetition_penalty is 0"], b'{"repetition_penalty": 0}'),
                                             (["max_new_tokens is 0"], b'{"max_new_tokens": 0}'), (["JSON line 1"], b'{"temperature": '),
                                             (["eos_token_id is 9999", "0 to"], b'{"eos_token_id": 9999}')]):
            model = self.copy(f"generation{i}", change={"generation_config.json": config})
            self.refuse(FAILURE, ["generation_config.json", *words], "run", model, "-p", "hi", "-n", "1")

    def test_generation_config_is_used(self):
        def text(model, *arguments):
            return self.lathe.json("run", model, "-p", "Tell me a story.", "--json", "--temp", "0", *arguments)

        model = self.copy("generation_used", change={"generation_config.json": b'{"repetition_penalty": 5, "max_new_tokens": 12, "num_beams": 4, "typical_p": 1.0}'})
        plain = text(self.lathe.builtin, "-n", "12")
        given = text(self.lathe.builtin, "-n", "12", "--repetition-penalty", "5")
        self.assertNotEqual(plain["reasoning"] + plain["text"], given["reasoning"] + given["text"])
        used = text(model)
        self.assertEqual((used["reasoning"], used["text"], used["usage"]), (given["reasoning"], given["text"], given["usage"]))
        said = self.lathe.run("run", model, "-p", "hi", "-n", "1").stderr.decode()
        self.assertIn("num_beams is 4", said)
        self.assertNotIn("typical_p", said)

    # Text.

    def test_templates_that_fail(self):
        for i, (words, source) in enumerate([(["line 1"], b"{{ foo.bar }}"), (["line 2"], b"x\n{{ 1 / 0 }}"), (["line 1"], b"{% for i in range(1, 5, 0) %}{% endfor %}"),
                                             (["steps"], b"{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}")]):
            model = self.copy(f"template{i}", change={"chat_template.jinja": source})
            self.refuse(FAILURE, [f"template{i}/chat_template.jinja", *words], "run", model, "-p", "hi")
        model = self.copy("template_refuses", change={"chat_template.jinja": b"{{ raise_exception('no such role') }}"})
        self.refuse(USAGE, ["no such role"], "run", model, "-p", "hi")

    def test_tokenizer_without_control_tokens(self):
        def bare(text):
            return json.dumps(dict(json.loads(text), added_tokens=[]))

        with_defaults = self.copy("tokens_stop", change={"tokenizer.json": bare})
        self.refuse(FAILURE, ["generation_config.json", "eos_token_id is 3544", "0 to 3543"], "run", with_defaults, "-p", "hi")
        done = self.lathe.run("run", self.copy("tokens_split", change={"tokenizer.json": bare}, without=("generation_config.json",)), "-p", "hi", "-n", "1")
        said = done.stderr.decode()
        self.assertEqual(done.returncode, 0, said)
        for token in ("tokenizer.json", "[gMASK]", "<sop>", "<|user|>", "<|assistant|>"):
            self.assertIn(token, said)
        self.assertEqual(self.lathe.run("run", "-p", "hi", "-n", "1").stderr, b"")

    # Files that do not go together.

    def edited(self, what, file, **keys):
        return self.copy(what, change={file: lambda text: json.dumps(dict(json.loads(text), **keys))})

    def test_templates_that_are_no_text(self):
        for what, data, words in [("template_binary", b"a\xff{{ messages }}", ["byte at 1", "UTF-8"]), ("template_zero", b"ab\0", ["byte at 2"]), ("template_empty", b"", ["is empty"])]:
            self.refuse(FAILURE, [f"{what}/chat_template.jinja", *words], "run", self.copy(what, change={"chat_template.jinja": data}), "-p", "hi")
        done = self.lathe.run("run", self.copy("template_deaf", change={"chat_template.jinja": b"Once upon a time"}), "-p", "hi", "-n", "1")
        self.assertEqual(done.returncode, 0)
        self.assertIn("template_deaf leaves out what the user says", done.stderr.decode())

    def test_optional_files(self):
        for file, keys, words in [("generation_config.json", {"do_sample": "no"}, ['do_sample is "no"']), ("generation_config.json", {"pad_token_id": "x"}, ["pad_token_id"]),
                                  ("preprocessor_config.json", {"patch_size": 16}, ["'patch_size' is 16", "config.json is 14"]),
                                  ("preprocessor_config.json", {"merge_size": 4}, ["'merge_size' is 4", "'spatial_merge_size'", "is 2"]),
                                  ("config.json", {"image_token_id": 17}, ["image_token_id is 17", "added tokens"]), ("config.json", {"video_end_token_id": 3}, ["video_end_token_id is 3"])]:
            what = f"{file}_{next(iter(keys))}"
            self.refuse(FAILURE, [f"{what}/{file}", *words], "run", self.edited(what, file, **keys), "-p", "hi")
        self.refuse(FAILURE, ["tokenizer_config.json holds an array"], "run", self.copy("tokenizer_list", change={"tokenizer_config.json": b"[]"}), "-p", "hi")
        for name in ("chat_template.jinja", "generation_config.json", "preprocessor_config.json", "tokenizer_config.json"):
            model = self.copy("dangling_" + name, without=(name,))
            os.symlink("/nowhere/at/all", os.path.join(model, name))
            self.refuse(FAILURE, [f"dangling_{name}/{name}' is a link to a file that is not there"], "run", model, "-p", "hi")

    def test_placeholder_outside_the_tokenizer(self):
        apple = os.path.join(self.lathe.data, "golden", "tiny", "apple.png")
        model = self.edited("far_placeholder", "config.json", image_token_id=3583)
        self.refuse(FAILURE, ["far_placeholder/config.json", "image_token_id is 3583"], "run", model, "-p", "x", "--image", apple)

    def test_pictures_that_are_too_large(self):
        header = b"\x89PNG\r\n\x1a\n" + struct.pack(">I4sII5B", 13, b"IHDR", 1, 20000, 8, 2, 0, 0, 0)
        self.refuse(FAILURE, ["tall.png", "the picture is 1 x 20000, at most 16384 x 16384"], "run", "-p", "x", "--image", self.write("tall.png", header))

    def test_patches_that_do_not_fit_their_grid(self):
        path = self.path("grid.safetensors")
        values = 3 * 2 * 14 * 14
        for grid, words in [((1, 2, 4), ["picture 0 is 1 x 2 x 4, 8 patches", "4 are left of the 4"]), ((1, 0, 2), ["picture 0 is 1 x 0 x 2", "at least 1"]),
                            ((1, 2, 2), ["placeholders of id 3578"])]:
            clilib.write_tensors(path, {"grid": ("I64", [3], struct.pack("<3q", *grid)), "pixel_values": ("F32", [4, values], bytes(16 * values))})
            self.refuse_logits(FAILURE, ["grid.safetensors", *words], self.lathe.builtin, "--pixels", path)
        ids = self.write("placeholders.json", b"[1, 3578, 3578]")
        self.refuse(FAILURE, ["placeholders.json", "2 placeholders of pictures (id 3578)", "--pixels"], "logits", "--ids", ids, "--out", self.out)

    # Evaluation.

    def test_the_context_of_an_evaluation(self):
        few = ["eval", "--only", "add_2_digits", "--rows", "1"]
        self.refuse(USAGE, ["--context is 5", "set 'add_2_digits'", "tokens"], *few, "-c", "5")
        self.assertEqual(self.lathe.json(*few, "-c", "300", "--json")["context"], 300)
        self.refuse(USAGE, ["-c"], "selftest", "-c", "1")

    def sets(self, what, index=None, heldout=None, facts=None):
        os.makedirs(self.path(what))
        self.write(f"{what}/index.json", json.dumps({"bytes_per_token_of_evaluate": 3.5, "sets": {"heldout": {} if facts is None else facts}, **(index or {})}).encode())
        self.write(f"{what}/heldout.jsonl", json.dumps(heldout or {"ids": [1, 2, 3]}).encode() + b"\n")
        return self.path(what)

    def test_evaluation_sets(self):
        self.lathe.good("eval", "--sets", self.sets("fine", heldout={"ids": [1, 2, 3], "bytes": 9}))
        for i, (words, change) in enumerate([(["index.json", "bytes_per_token"], {"index": {"bytes_per_token_of_evaluate": 1e-300}}),
                                             (["index.json", "bytes_per_token"], {"index": {"bytes_per_token_of_evaluate": 1e300}}),
                                             (["index.json", "'heldout' is 5"], {"facts": 5}), (["line 1", "'bytes' is 0"], {"heldout": {"ids": [1, 2], "bytes": 0}})]):
            self.refuse(FAILURE, words, "eval", "--sets", self.sets(f"sets{i}", **change))

    def test_compared_reports(self):
        count = iter(range(100))

        def report(rows, numbers, name="add_2_digits"):
            return self.write(f"report{next(count)}.json", json.dumps({"sets": {name: {"rows": rows, "row_numbers": numbers}}}).encode())

        for words, path in [(["add_2_digits", "'rows' has 'x' at 1"], report("1x", [0, 1])), (["'row_numbers' has 0 at 1"], report("11", [0, 0])),
                            (["'row_numbers' has 1 at 1"], report("11", [2, 1])), (["'row_numbers'"], report("11", [1])), (["to compare"], report("1", [0], "other")),
                            (["to compare"], report("1", [199])), (["report.json", "JSON line"], self.write("report.json", b"{"))]:
            self.refuse(FAILURE, [os.path.basename(path), *words], "eval", "--only", "add_2_digits", "--rows", "1", "--compare", path)
        self.lathe.good("eval", "--only", "add_2_digits", "--rows", "1", "--compare", report("1", [0]))


if __name__ == "__main__":
    Damaged.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
