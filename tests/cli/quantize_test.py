"""quantize: what it writes is read by every verb; what it refuses; what an interruption or a full disk leaves; broken quantised checkpoints.

Usage: quantize_test.py LATHE SOURCE
"""

import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
import unittest

import clilib

USAGE, FAILURE = 2, 1
O_PROJ = "model.language_model.layers.3.self_attn.o_proj.weight"


class Folders(clilib.Case):
    """Copies of model folders that a test may break."""

    copies = 0

    def copy(self, model):
        Folders.copies += 1
        return shutil.copytree(model, self.path(f"copy_{Folders.copies}"))

    @staticmethod
    def patch(model, name, at, data):
        """Replaces bytes of a tensor, whichever file holds it."""
        for file in sorted(os.listdir(model)):
            if not file.endswith(".safetensors"):
                continue
            with open(os.path.join(model, file), "r+b") as shard:
                length = struct.unpack("<Q", shard.read(8))[0]
                entry = json.loads(shard.read(length)).get(name)
                if entry is not None:
                    shard.seek(8 + length + entry["data_offsets"][0] + at)
                    shard.write(data)
                    return
        raise AssertionError(f"no {name} in {model}")


class Quantize(Folders):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.int8 = cls.path("int8")
        cls.report = json.loads(cls.lathe.good("quantize", cls.lathe.builtin, cls.int8, "--weights", "int8", "--act", "int8", "--json"))

    def refuse(self, code, words, *arguments):
        done = self.lathe.run(*arguments)
        said = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (code, b""), said)
        self.assertTrue(said.startswith("error: ") and said.count("\n") == 1, said)
        for word in words:
            self.assertIn(word, said)

    @staticmethod
    def wait_for_work(out):
        """Until the folder that becomes `out` says what is made in it."""
        note = os.path.join(out + ".part", "work.txt")
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and not os.path.exists(out):
            if os.path.exists(note) and os.path.getsize(note) > 0:
                return
            time.sleep(0.001)

    @staticmethod
    def tensors(model):
        """All tensors of a folder: name to (dtype, shape, bytes)."""
        out = {}
        for name in sorted(os.listdir(model)):
            if name.endswith(".safetensors"):
                out.update(clilib.read_tensors(os.path.join(model, name)))
        return out

    def config(self, model):
        with open(os.path.join(model, "config.json"), encoding="utf-8") as file:
            return json.load(file)

    def test_what_is_written(self):
        stored = self.tensors(self.int8)
        old = self.tensors(self.lathe.builtin)
        self.assertEqual(stored[O_PROJ][0], "I8")
        self.assertEqual((stored[O_PROJ + "_scale"][0], stored[O_PROJ + "_scale"][1]), ("F32", [384, 1]))
        self.assertNotIn(O_PROJ + "_scale_inv", stored)
        for name, tensor in stored.items():
            if tensor[0] != "I8" and not name.endswith("weight_scale"):
                self.assertEqual(tensor, old[name], name)  # what is not quantised stays bit for bit
        for part in ("embed_tokens", "lm_head", "kv_b_proj", "mlp.gate.", "indexer.wk", "f_a_proj", "visual", "eh_proj"):
            self.assertFalse([n for n, t in stored.items() if part in n and t[0] == "I8"], part)
        quantization = self.config(self.int8)["quantization_config"]
        self.assertEqual((quantization["quant_method"], quantization["format"]), ("compressed-tensors", "int-quantized"))
        self.assertIn("model.layers.3.self_attn.kv_b_proj", quantization["ignore"])
        self.assertNotIn("model.layers.3.self_attn.o_proj", quantization["ignore"])
        for name in ("tokenizer.json", "chat_template.jinja", "licences/twemoji.txt"):
            with open(os.path.join(self.int8, name), "rb") as new, open(os.path.join(self.lathe.builtin, name), "rb") as before:
                self.assertEqual(new.read(), before.read(), name)
        self.assertFalse([name for name in os.listdir(self.int8) if "errors" in name or "part" in name or "work" in name])

    def test_the_report(self):
        self.assertEqual(len(self.report["matrices"]), sum(kind["matrices"] for kind in self.report["kinds"]))
        worst = max(matrix["relative_rms"] for matrix in self.report["matrices"])
        self.assertTrue(0.001 < worst < 0.03, worst)
        with open(os.path.join(self.int8, "quantization_report.json"), encoding="utf-8") as file:
            self.assertEqual(json.load(file), self.report["matrices"])
        page = self.lathe.good("quantize", self.lathe.builtin, self.path("page"), "--weights", "int8", "--keep", "*experts.*", "--keep", O_PROJ)
        self.assertIn("relative RMS", page)
        self.assertIn("matrices stay as --keep says", page)
        kept = self.tensors(self.path("page"))
        self.assertEqual(kept[O_PROJ][0], "F8_E4M3")
        facts = self.lathe.json("inspect", self.path("page"), "--json")
        self.assertEqual(facts["quantisation"], "int8 weights")
        self.assertGreater(facts["total"]["fp8_matrices"], 100)

    def test_every_verb_takes_it(self):
        facts = self.lathe.json("inspect", self.int8, "--json")
        self.assertEqual(facts["quantisation"], "int8 weights, int8 activations")
        self.assertEqual(facts["total"]["int8_matrices"], len(self.report["matrices"]))
        self.assertIn("int8 weights, int8 activations", self.lathe.good("inspect", self.int8))
        self.lathe.good("run", self.int8, "-p", "Hello.", "-n", "4")
        self.lathe.good("run", self.int8, "-p", "Hello.", "-n", "2", "--dtype", "float32")
        self.lathe.good("bench", "model", self.int8, "--check")

    def test_other_formats(self):
        bf16 = self.path("bf16")
        self.lathe.good("quantize", self.lathe.builtin, bf16, "--weights", "bf16")
        self.assertNotIn("quantization_config", self.config(bf16))
        self.assertEqual({t[0] for t in self.tensors(bf16).values()}, {"BF16", "F32"})
        fp8 = self.path("fp8")
        self.lathe.good("quantize", bf16, fp8, "--weights", "fp8")
        stored, old = self.tensors(fp8), self.tensors(self.lathe.builtin)
        self.assertEqual({n: t[:2] for n, t in stored.items()}, {n: t[:2] for n, t in old.items()})
        plain = [set(self.config(m)["quantization_config"]["modules_to_not_convert"]) for m in (self.lathe.builtin, fp8)]
        linear = [{name for name in names if "conv1d" not in name and "visual" not in name} for names in plain]
        self.assertEqual(linear[0], linear[1])
        self.lathe.good("run", bf16, "-p", "Hello.", "-n", "2")
        again = self.path("again")
        self.lathe.good("quantize", self.int8, again, "--weights", "int8", "--act", "int8")
        self.assertEqual(self.tensors(again), self.tensors(self.int8))
        self.lathe.good("quantize", self.int8, self.path("widened"), "--weights", "bf16")
        self.assertEqual({t[0] for t in self.tensors(self.path("widened")).values()}, {"BF16", "F32"})

    def test_refused(self):
        new = self.path("new")
        builtin = self.lathe.builtin
        self.refuse(USAGE, ["two folders"], "quantize", builtin)
        self.refuse(USAGE, ["--act int8 needs --weights int8", "fp8"], "quantize", builtin, new, "--weights", "fp8", "--act", "int8")
        self.refuse(USAGE, ["--keep 'none*'", "names no matrix"], "quantize", builtin, new, "--keep", "none*")
        self.refuse(FAILURE, [self.int8, "already"], "quantize", builtin, self.int8)
        self.refuse(USAGE, [builtin, "outside"], "quantize", builtin, os.path.join(builtin, "new"))
        self.refuse(FAILURE, ["nowhere"], "quantize", self.path("nowhere"), new)
        self.refuse(FAILURE, ["nowhere"], "quantize", builtin, self.path("nowhere/new"))
        for arguments in (["--weights", "int4"], ["--act", "fp8"], ["--weights"]):
            self.assertEqual(self.lathe.run("quantize", builtin, new, *arguments).returncode, USAGE, arguments)
        self.assertFalse(os.path.exists(new) or os.path.exists(new + ".part"))

    def test_calibrated(self):
        text = self.write("text.txt", b"The user greets you. Answer in one sentence: what is 12 + 30?\n" * 40)
        out = self.path("calibrated")
        report = self.lathe.json("quantize", self.lathe.builtin, out, "--act", "int8", "--calibrate", text, "--json")
        self.assertGreater(report["calibrated_tokens"], 200)
        # Matrices that stay as stored are told with the error that they would have had.
        converted = {m["name"] for m in report["matrices"]}
        for m in report["outliers"]:
            self.assertGreater(m["weights_error"] + m["activations_error"], 0.05)
            self.assertNotIn(m["name"], converted)
        self.assertTrue(all(m["output_rms"] <= m["output_rms_plain"] for m in report["matrices"]))
        self.assertNotEqual(self.tensors(out), self.tensors(self.int8))
        self.lathe.good("run", "-m", out, "-p", "hi", "-n", "2")
        self.assertIn("Calibrated over", self.lathe.good("quantize", self.lathe.builtin, self.path("calibrated_again"), "--calibrate", text))
        new = self.path("new")
        self.refuse(USAGE, ["--calibrate needs --weights int8", "fp8"], "quantize", self.lathe.builtin, new, "--weights", "fp8", "--calibrate", text)
        self.refuse(FAILURE, ["none.txt"], "quantize", self.lathe.builtin, new, "--calibrate", self.path("none.txt"))
        self.refuse(FAILURE, ["empty.txt", "no text"], "quantize", self.lathe.builtin, new, "--calibrate", self.write("empty.txt", b""))
        self.assertFalse(os.path.exists(new) or os.path.exists(new + ".part"))

    def test_weights_that_are_no_numbers(self):
        broken = self.copy(self.lathe.builtin)
        name = "model.language_model.layers.0.self_attn.q_proj.weight"
        self.patch(broken, name, 2 * (384 * 5 + 3), struct.pack("<H", 0x7FC0))
        self.refuse(FAILURE, [name, "row 5", "no finite number"], "quantize", broken, self.path("nan"))
        self.assertFalse(os.path.exists(self.path("nan")))

    def test_a_disk_that_fills_up(self):
        out = self.path("full")
        limited = f"ulimit -f 2000; exec '{self.lathe.program}' quantize '{self.lathe.builtin}' '{out}'"
        done = subprocess.run(["sh", "-c", limited], capture_output=True, check=False, timeout=120, env=self.lathe.environment)
        self.assertEqual(done.returncode, FAILURE, done.stderr)
        self.assertEqual((done.stderr.count(b"\n"), done.stderr.count(b"File too large")), (1, 1), done.stderr)
        self.assertFalse(os.path.exists(out))
        self.assertFalse(os.path.exists(out + ".part"))  # no file was whole
        self.lathe.good("quantize", self.lathe.builtin, out)  # goes on when there is room

    def test_killed_and_started_again(self):
        out = self.path("stopped")
        arguments = ["quantize", self.lathe.builtin, out, "--act", "int8", "--threads", "1"]
        with subprocess.Popen([self.lathe.program, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.lathe.environment) as process:
            self.wait_for_work(out)
            process.send_signal(signal.SIGKILL)
            process.communicate()
        self.assertNotEqual(os.path.exists(out), os.path.exists(out + ".part"))  # one or the other, never both
        if os.path.exists(out):
            self.skipTest("it was done before it was killed")
        self.refuse(FAILURE, ["unfinished work of another kind", "int8"], "quantize", self.lathe.builtin, out, "--weights", "fp8")
        self.lathe.good(*arguments)
        self.assertEqual(self.tensors(out), self.tensors(self.int8))
        self.assertFalse(os.path.exists(out + ".part"))

    def test_interrupted(self):
        out = self.path("interrupted")
        arguments = [self.lathe.program, "quantize", self.lathe.builtin, out, "--threads", "1"]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=self.lathe.environment) as process:
            self.wait_for_work(out)
            process.send_signal(signal.SIGINT)
            said = process.communicate()[1].decode()
        if process.returncode == 0:
            self.skipTest("it was done before it was stopped")
        self.assertEqual(process.returncode, 130, said)
        self.assertFalse(os.path.exists(out))


class BrokenInt8(Folders):
    """Quantised checkpoints that are not what they say."""

    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.int8 = cls.path("int8")
        cls.lathe.good("quantize", cls.lathe.builtin, cls.int8, "--act", "int8")

    def refuse(self, words, model):
        done = self.lathe.run("run", model, "-p", "Hello.", "-n", "1")
        said = done.stderr.decode()
        self.assertEqual((done.returncode, done.stdout), (FAILURE, b""), said)
        self.assertEqual(said.count("\n"), 1, said)
        for word in words:
            self.assertIn(word, said)

    def change_config(self, change):
        model = self.copy(self.int8)
        path = os.path.join(model, "config.json")
        with open(path, encoding="utf-8") as file:
            config = json.load(file)
        change(config)
        with open(path, "w", encoding="utf-8") as file:
            json.dump(config, file)
        return model

    def test_scales(self):
        for value, word in ((float("nan"), "nan"), (0.0, "scale 0"), (-1.0, "-1")):
            model = self.copy(self.int8)
            self.patch(model, O_PROJ + "_scale", 4 * 7, struct.pack("<f", value))
            self.refuse([O_PROJ, word, "[7, 0]", "positive"], model)

    def test_configs(self):
        def group(config):
            return config["quantization_config"]["config_groups"]["group_0"]

        def set_to(path, value):
            def change(config):
                at = group(config) if path[0] in ("weights", "input_activations") else config["quantization_config"]
                for key in path[:-1]:
                    at = at[key]
                at[path[-1]] = value
            return change

        self.refuse(["quant_method", "awq", "fp8", "compressed-tensors"], self.change_config(set_to(["quant_method"], "awq")))
        self.refuse(["format", "pack-quantized", "int-quantized"], self.change_config(set_to(["format"], "pack-quantized")))
        self.refuse(["num_bits", "4"], self.change_config(set_to(["weights", "num_bits"], 4)))
        self.refuse(["strategy", "group"], self.change_config(set_to(["weights", "strategy"], "group")))
        self.refuse(["dynamic", "false"], self.change_config(set_to(["input_activations", "dynamic"], False)))
        self.refuse(["is i8", "quantization_config"], self.change_config(lambda config: config.pop("quantization_config")))

    def test_modelslim(self):
        model = self.change_config(lambda config: config.pop("quantization_config"))
        names = {name: "W8A8_DYNAMIC" if tensor[0] == "I8" or name.endswith("weight_scale") else "FLOAT"
                 for name, tensor in Quantize.tensors(model).items()}
        path = os.path.join(model, "quant_model_description.json")

        def describe(**changed):
            with open(path, "w", encoding="utf-8") as file:
                json.dump({"model_quant_type": "W8A8_DYNAMIC", "version": "1.0.0", **names, **changed}, file)

        describe()
        self.assertEqual(self.lathe.json("inspect", model, "--json")["quantisation"], "int8 weights, int8 activations")
        answers = [self.lathe.good("run", m, "-p", "Tell me a story.", "-n", "8", "--temperature", "0") for m in (model, self.int8)]
        self.assertEqual(answers[0], answers[1])
        describe(**{O_PROJ: "FLOAT"})
        self.refuse([O_PROJ, "i8", "FLOAT"], model)
        describe(**{O_PROJ: "W8A8"})
        self.refuse([O_PROJ, "W8A8_DYNAMIC", "quant_model_description.json"], model)
        describe(optional={"quarot": True})
        self.refuse(["optional", "rotated"], model)


if __name__ == "__main__":
    clilib.Case.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
