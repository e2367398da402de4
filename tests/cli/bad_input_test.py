"""Bad input: one sentence on stderr that names the thing and the value, nothing on stdout, and an exit code.

The code is 2 for usage (a flag, a setting, a prompt) and 1 for failures (a file is missing, cannot be read or does not hold what it should).

Usage: bad_input_test.py LATHE SOURCE
"""

import json
import os
import subprocess
import sys
import unittest

import clilib

USAGE, FAILURE = 2, 1


class BadInput(clilib.Case):
    @classmethod
    def setUpClass(cls):
        super().setUpClass()
        cls.ids = cls.write("ids.json", b"[1, 2, 3, 4]")

    def refuse(self, code, words, *arguments, stdin=b"", env=None):
        done = self.lathe.run(*arguments, stdin=stdin, env=env)
        said = done.stderr.decode(errors="replace")
        place = f"lathe {' '.join(arguments)}: {said}"
        self.assertEqual(done.returncode, code, place)
        self.assertEqual(done.stdout, b"", place)
        self.assertTrue(said.startswith("error: ") and said.endswith("\n") and said.count("\n") == 1, place)
        for word in words:
            self.assertIn(word, said, place)

    def refuse_model(self, code, words, model):
        """A model that logits must not take."""
        self.refuse(code, words, "logits", model, "--log-level", "error", "--ids", self.ids, "--out", self.path("none.safetensors"))
        self.assertFalse(os.path.exists(self.path("none.safetensors")))

    def test_threads_that_do_not_start(self):
        # 8 MiB of addresses for a stack: not 512 of them in 3 GiB.
        limited = f"ulimit -v 3000000; exec '{self.lathe.program}' run -p hi -n 1 -t 512"
        done = subprocess.run(["sh", "-c", limited], capture_output=True, check=False, timeout=120, env=self.lathe.environment)
        said = done.stderr.decode(errors="replace")
        if "sanitizer" in said.lower() or "ReserveShadowMemoryRange" in said:
            self.skipTest("a sanitizer needs more addresses than the limit leaves")
        self.assertEqual((done.returncode, done.stdout), (FAILURE, b""), said)
        self.assertIn("cannot start 512 threads", said)

    def test_values_name_flag_value_and_range(self):
        self.refuse(USAGE, ["--batch is 'x'", "from 1 to 1048576"], "inspect", "--batch", "x")
        self.refuse(USAGE, ["--batch is '0'", "from 1 to 1048576"], "inspect", "--batch=0")
        self.refuse(USAGE, ["--weights is 'int4'", "int8, fp8, bf16"], "quantize", "--weights", "int4", "a", "b")
        self.refuse(USAGE, ["--temp or --temperature", "2 times"], "run", "-p", "hi", "--temp", "1", "--temperature", "0")
        self.refuse(USAGE, ["run has no flag '--frobnicate'"], "run", "--frobnicate")
        self.refuse(USAGE, ["run has no flag '--frobnicate'"], "run", "--frobnicate", "3", "--other")
        self.refuse(USAGE, ["inspect has no place for 'b'"], "inspect", "a", "b")
        self.refuse(USAGE, ["99999999", "expected 1 to"], "bench", "model", "--prompt", "99999999")

    def test_a_flag_is_no_value(self):
        self.refuse(USAGE, ["--system is given without a value", "'--json'"], "run", "--system", "--json", "-p", "hi")
        self.refuse(USAGE, ["-p is given without a value", "'--seed=3'"], "run", "-p", "--seed=3")

    def test_flags_twice_in_a_word(self):
        for word in ["-m x -m y", "x --model y"]:
            self.refuse(USAGE, [word, "twice"], "eval", "--against", word, "--rows", "1")

    def test_arms_are_command_lines(self):
        for arm in ["--frobnicate 3", "--threads x"]:
            done = self.lathe.run("bench", "ab", "--a", arm, "--b", "--threads 1")
            self.assertEqual((done.returncode, done.stdout), (USAGE, b""), done.stderr)
            self.assertIn(f"arm '{arm}' cannot be measured", done.stderr.decode())

    def test_switches_take_no_value(self):
        for switch in ["--json=5", "--ignore-eos=5x", "--log-json=maybe", "--no-fallback=foo"]:
            done = self.lathe.run("run", "-p", "hi", switch)
            self.assertEqual((done.returncode, done.stdout), (USAGE, b""), switch)
            self.assertIn(switch.split("=")[0].removeprefix("--"), done.stderr.decode())

    def test_command_line(self):
        for words, arguments in [
            (["needs a verb", "run"], []),
            (["frobnicate", "run"], ["frobnicate"]),
            (["--frobnicate"], ["--frobnicate"]),
            (["schema"], ["config"]),
            (["frob", "schema"], ["config", "frob"]),
            (["--nope"], ["run", "-p", "hi", "--nope"]),
            (["word"], ["run", "-p", "hi", "MODEL", "word"]),
            (["--stop"], ["run", "-p", "hi", "--stop"]),
            (["every", "0"], ["eval", "--every", "0"]),
            (["batch", "0"], ["inspect", "--batch", "0"]),
        ]:
            self.refuse(USAGE, words, *arguments)

    def test_flags_given_twice(self):
        for name, arguments in [
            ("--temperature", ["config", "show", "--temperature", "0", "--temperature", "1"]),
            ("--temp", ["run", "-p", "hi", "--temp", "0", "--temperature", "1"]),
            ("-t", ["inspect", "-t", "1", "--threads", "2"]),
            ("-m", ["selftest", "-m", self.base, "-m", self.base]),
            ("-p", ["run", "-p", "a", "-p", "b"]),
            ("--every", ["eval", "--every", "2", "--every", "3"]),
            ("--ids", ["logits", "--ids", self.ids, "--ids", self.ids, "--out", self.path("o")]),
            ("--tokens", ["bench", "ops", "--tokens", "1", "--tokens", "2"]),
            ("--settings", ["bench", "model", "--settings", "a", "--settings", "a"]),
            ("--json", ["inspect", "--json", "--json"]),
            ("--json", ["config", "schema", "--json", "--json"]),
            ("--log-json", ["config", "show", "--log-json", "--log-json"]),
        ]:
            self.refuse(USAGE, [f"error: {name} ", "is given 2 times: expected once"], *arguments)

    def test_empty_values(self):
        run, logits, show = ["run", "-p", "hi"], ["logits", "--ids", self.ids, "--out", self.path("o")], ["config", "show"]
        for verb, *flags in [
            [run, "-m", "--system", "--image", "--stop", "--logit-bias", "--trace", "--settings", "--reasoning-effort", "-f", "-n"],
            [logits, "--chunks", "--at", "--pixels", "--decode-from"],
            [["eval"], "--only", "--sets", "--compare", "--against", "--could-turn", "--every", "--rows", "-m"],
            [["inspect"], "--batch", "-m", "--context"],
            [["selftest"], "-m", "--dtype"],
            [show, "--context", "--temperature", "--isa", "--kernel", "--settings"],
            [["bench", "ops"], "--op", "--shapes", "--tokens", "--baseline"],
            [["bench", "model"], "--prompt", "--batch", "--samples"],
            [["bench", "ab", "-t 1", "-t 2"], "--verb-args", "--pairs"],
        ]:
            for flag in flags:
                self.refuse(USAGE, [f"error: {flag} is empty: expected"], *verb, flag, "")
                if flag.startswith("--"):
                    self.refuse(USAGE, [f"error: {flag} is empty: expected"], *verb, f"{flag}=")
                self.refuse(USAGE, [f"error: {flag} is given without a value"], *verb, flag)
        self.refuse(USAGE, ["--temperature is empty"], "config", "show", "--temperature=", "0.5")
        self.refuse(USAGE, ["MODEL is empty"], "inspect", "")
        self.refuse(USAGE, ["--a is empty"], "bench", "ab", "", "-t 1")
        for words, arguments in [(["--only ','"], ["eval", "--only", ","]), (["'1,'"], [*logits, "--chunks", "1,"]), (["'1,,2'"], ["bench", "ops", "--tokens", "1,,2"]),
                                 (["--kernel"], ["inspect", "--kernel", "matmul=ref,"])]:
            self.refuse(USAGE, words, *arguments)

    def test_ranges_hold_as_told(self):
        told = {s["name"]: s for s in self.lathe.json("config", "schema", "--json")["settings"] if s["type"] in ("int", "number")}
        self.assertTrue(told["sampling.top-p"]["min_excluded"] and told["sampling.min-p"]["max_excluded"])
        for name, spec in told.items():
            step = 1 if spec["type"] == "int" else 1e-9
            for end, sign in (("min", -1), ("max", 1)):
                inside, outside = spec[end], spec[end] + sign * step
                if spec.get(end + "_excluded"):
                    inside, outside = inside - sign * step, inside
                if outside not in (spec.get("also"),):
                    self.refuse(USAGE, [name, "expected"], "config", "show", f"--{name}={outside:.12g}" if step < 1 else f"--{name}={outside}")
                kept = self.lathe.json("config", "show", f"--{name}={inside:.12g}" if step < 1 else f"--{name}={inside}")[name]["value"]
                self.assertAlmostEqual(kept, inside, delta=step / 2)
                if name.startswith("sampling."):  # the sampler takes what the setting takes
                    self.lathe.good("run", "-p", "hi", "-n", "1", f"--{name}={kept}") if "max-tokens" not in name else None
        self.lathe.good("run", "-p", "hi", "-n", "1", "--temperature", "0")
        for words, arguments in [
            (["top-p is 0", "more than 0 and at most 1"], ["--top-p", "0"]),
            (["min-p is 1", "from 0 to less than 1"], ["--min-p", "1"]),
            (["0.0001", "0 or a number from 0.001 to 100"], ["--temperature", "0.0001"]),
            (["repetition-penalty is 0", "more than 0 and at most 10"], ["--repetition-penalty", "0"]),
            (["9200000000000000001", "9200000000000000000"], ["--seed", "9200000000000000001"]),
        ]:
            self.refuse(USAGE, words, "config", "show", *arguments)
            self.assertIn(words[-1], self.lathe.good("run", "--help").replace("\n" + " " * 30, ""))

    def test_lists_do_not_swallow_the_model(self):
        for flag in (["--stop", "x"], ["--logit-bias", "1=1"]):
            self.refuse(FAILURE, ["no model at '/nowhere/model'"], "run", "-p", "hi", *flag, "/nowhere/model")

    def shell(self, command):
        """(exit code, stdout, stderr) of a command line in which $LATHE is the program."""
        done = subprocess.run(["bash", "-c", command], capture_output=True, check=False, timeout=300, env=dict(self.lathe.environment, LATHE=self.lathe.program))
        return done.returncode, done.stdout.decode(errors="replace"), done.stderr.decode(errors="replace")

    def test_output_that_cannot_be_written(self):
        for verb in ("--version", "--help", "run --help", "config schema", "config show", "inspect", "inspect --json", "run -p hi -n 3", "run -p hi -n 3 --json",
                     "eval --only add_2_digits --every 1000"):
            code, _, said = self.shell(f'"$LATHE" {verb} >/dev/full')
            self.assertEqual((code, said), (FAILURE, "error: cannot write to stdout: what was printed is not whole\n"), verb)
        code, _, said = self.shell('"$LATHE" config schema >&-')
        self.assertEqual((code, said.count("\n")), (FAILURE, 1), said)

    def test_a_reader_that_leaves(self):
        code, out, said = self.shell('set -o pipefail; "$LATHE" run -p "Tell me a long story." --temp 0 --ignore-eos -n 4000 | head -c 1')
        self.assertEqual((code, len(out), said), (141, 1, ""))
        # The same below a parent that ignores the signal.
        code, out, said = self.shell("set -o pipefail; trap '' PIPE; \"$LATHE\" run -p hi --temp 0 --ignore-eos -n 4000 | head -c 1")
        self.assertEqual((code, len(out), said), (141, 1, ""))

    def test_a_limit_on_file_sizes(self):
        trace, logits = self.path("limited.json"), self.path("limited.safetensors")
        code, out, said = self.shell(f'ulimit -f 8; "$LATHE" run -p hi -n 20 --temp 0 --trace {trace}')
        self.assertEqual((code, said), (FAILURE, f"error: --trace: cannot write '{trace}': File too large\n"))
        self.assertTrue(out)
        code, _, said = self.shell(f'ulimit -f 1; "$LATHE" logits {self.base} --ids {self.ids} --out {logits} --log-level error')
        self.assertEqual((code, said), (FAILURE, f"error: cannot write '{logits}': File too large\n"))
        code, _, said = self.shell(f'ulimit -f 1; "$LATHE" config schema > {self.path("limited.out")}')
        self.assertEqual((code, said), (FAILURE, "error: cannot write to stdout: what was printed is not whole\n"))
        self.assertEqual([name for name in os.listdir(self.folder.name) if name.startswith("limited")], ["limited.out"])

    def test_a_trace_tells_how_the_run_ended(self):
        trace = self.path("ended.json")
        self.lathe.good("run", "-p", "hi", "-n", "1", "--trace", trace)
        self.assertEqual(json.loads(self.content(trace))["otherData"]["outcome"], "done")
        self.refuse(USAGE, ["prompt has"], "run", "--raw", "-p", "Once upon a time there was a fox", "--context", "2", "--json", "--trace", trace)
        self.assertEqual(json.loads(self.content(trace))["otherData"]["outcome"], "invalid_argument")
        self.refuse(FAILURE, ["no model"], "run", "-m", self.path("none"), "-p", "x", "--json", "--trace", self.path("never.json"))
        self.assertFalse(os.path.exists(self.path("never.json")))

    def test_values_of_settings(self):
        for words, arguments in [
            (["temperature", "-1", "0 or a number from 0.001 to 100"], ["--temperature", "-1"]),
            (["temperature", "warm"], ["--temperature", "warm"]),
            (["threads", "-3", "0 to 4096"], ["-t", "-3"]),
            (["top-p", "1.5"], ["--top-p", "1.5"]),
            (["min-p", "2"], ["--min-p", "2"]),
            (["seed", "1.5"], ["--seed", "1.5"]),
            (["max-tokens", "0"], ["-n", "0"]),
            (["dtype", "int4", "float32"], ["--dtype", "int4"]),
            (["mla-prefill", "sideways"], ["--mla-prefill", "sideways"]),
            (["context", "16777217"], ["--context", "16777217"]),
            (["kernel", "'matmul'", "op=variant"], ["--kernel", "matmul"]),
            (["matmul=nope", "scalar"], ["--kernel", "matmul=nope"]),
            (["nope=ref", "matmul"], ["--kernel", "nope=ref"]),
            (["mmx", "scalar"], ["--isa", "mmx"]),
            (["--cpu-range", "'3-1'", "0-3,8"], ["--cpu-range", "3-1"]),
            (["--cpu-range", "'0-8192'", "8192"], ["--cpu-range", "0-8192"]),
            (["processors 8190-8191", "may run on"], ["--cpu-range", "8190-8191"]),
            (["--cpu-mask", "'xyz'", "hexadecimal"], ["--cpu-mask", "xyz"]),
            (["--cpu-range", "--cpu-mask", "one of them"], ["--cpu-range", "0", "--cpu-mask", "1"]),
            (["numa", "far", "distribute"], ["--numa", "far"]),
        ]:
            self.refuse(USAGE, words, "run", "-p", "hi", *arguments)
        self.refuse(USAGE, ["temperature", "-1", "LATHE_SAMPLING_TEMPERATURE"], "run", "-p", "hi", env={"LATHE_SAMPLING_TEMPERATURE": "-1"})
        self.refuse(USAGE, ["LATHE_NONSENSE"], "run", "-p", "hi", env={"LATHE_NONSENSE": "1"})
        self.assertIn("settings", self.lathe.json("config", "schema", env={"LATHE_NONSENSE": "1"}))
        for settings in (b'{"nonsense": 1}', b'{"nonsense": {}}', b'{"engine": {"nonsense": {}}}', b'{"engine": {"nonsense": 1}}'):
            self.refuse(USAGE, ["s.json", "there is no setting", "nonsense'"], "config", "show", "--settings", self.write("s.json", settings))
        self.refuse(USAGE, ["s.json", "engine.threads", "many"], "config", "show", "--settings", self.write("s.json", b'{"engine.threads": "many"}'))
        self.refuse(FAILURE, ["s.json", "line 1"], "config", "show", "--settings", self.write("s.json", b'{"engine"'))
        self.refuse(FAILURE, ["none.json", "No such file"], "config", "show", "--settings", self.path("none.json"))

    def test_prompt(self):
        self.refuse(USAGE, ["-p is empty"], "run", "-p", "")
        self.refuse(USAGE, ["prompt is empty"], "run", "--raw")
        self.refuse(USAGE, ["prompt is empty"], "run", "-f", "-")
        self.refuse(USAGE, ["prompt is empty"], "run", "-f", self.write("empty.txt", b""))
        self.refuse(USAGE, ["-p", "-f"], "run", "-p", "hi", "-f", self.ids)
        self.refuse(USAGE, ["prompt has", "holds 2"], "run", "--raw", "-p", "Once upon a time there was a fox", "--context", "2")
        for verb in (["run", "-p", "hi"], ["inspect"]):
            self.refuse(USAGE, ["context", "16777216", "1048576"], *verb, "--context", "16777216")
        self.refuse(USAGE, ["--raw", "--system"], "run", "--raw", "--system", "x", "-p", "y")
        self.refuse(USAGE, ["--raw", "--image"], "run", "--raw", "--image", "x.png", "-p", "y")
        self.refuse(USAGE, ["--chat", "-p"], "run", "--chat", "-p", "y")
        self.refuse(USAGE, ["reasoning-effort", "'huge'", "low", "high", "max"], "run", "--reasoning-effort", "huge", "-p", "y")
        for bias, words in [("3", ["'3'", "ID=VALUE"]), ("x=1", ["'x=1'"]), ("999999=1", ["999999"]), ("1=nan", ["nan"]), ("-1=1", ["-1"])]:
            self.refuse(USAGE, ["bias", *words], "run", "-p", "hi", f"--logit-bias={bias}")

    def test_paths(self):
        nowhere = self.path("nowhere")
        for arguments in [["run", "-m", nowhere, "-p", "hi"], ["inspect", nowhere], ["selftest", nowhere], ["run", "-f", nowhere], ["eval", "--sets", nowhere],
                          ["logits", "--ids", nowhere, "--out", self.path("o")], ["logits", nowhere, "--ids", self.ids, "--out", self.path("o")]]:
            self.refuse(FAILURE, [nowhere, "No such file"], *arguments)
        for arguments in [["run", "-m", nowhere, "-p", "hi"], ["run", nowhere, "-p", "hi"], ["inspect", nowhere], ["eval", nowhere], ["selftest", nowhere],
                          ["logits", nowhere, "--ids", self.ids, "--out", self.path("o")]]:
            self.refuse(FAILURE, [f"there is no model at '{nowhere}': No such file"], *arguments)
        os.makedirs(self.path("no_model"), exist_ok=True)
        self.refuse(FAILURE, ["no_model"], "run", "-m", self.path("no_model"), "-p", "hi")
        self.refuse(FAILURE, ["no_model", "config.json"], "inspect", self.path("no_model"))
        self.refuse(FAILURE, [nowhere], "run", "-p", "hi", "-n", "1", "--trace", os.path.join(nowhere, "trace.json"))
        self.refuse(FAILURE, [self.folder.name, "not a regular file"], "run", "-f", self.folder.name)
        self.refuse(FAILURE, [self.folder.name, "not a regular file"], "logits", "--ids", self.folder.name, "--out", self.path("o"))
        pipe = self.path("pipe")
        os.mkfifo(pipe)
        for arguments in [["run", "-f", pipe], ["logits", "--ids", pipe, "--out", self.path("o")], ["run", "-p", "hi", "--settings", pipe], ["inspect", pipe]]:
            self.refuse(FAILURE, [pipe], *arguments)
        settings = self.write("zero.json", json.dumps({"engine": {"model": self.lathe.builtin + "\0x"}}).encode())
        self.refuse(FAILURE, [self.lathe.builtin + "\\x00x'"], "run", "-p", "hi", "--settings", settings)
        self.refuse(FAILURE, [nowhere], "run", "-p", "hi", env={"LATHE_BUILTIN": nowhere})

    def test_two_models(self):
        for flag in ("-m", "--model", "--engine.model"):
            self.refuse(USAGE, ["two models", self.base, self.lathe.builtin], "inspect", self.base, flag, self.lathe.builtin)
        self.lathe.good("inspect", self.base, "-m", self.base, "--log-level", "error")

    def test_outputs_do_not_replace_inputs(self):
        text = b"[1, 2, 3]"
        ids = self.write("same.json", text)
        link = self.path("same_link.json")
        os.symlink(ids, link)
        for out in (ids, link, os.path.join(self.folder.name, ".", "same.json")):
            self.refuse(USAGE, ["--out", out, "--ids"], "logits", self.base, "--ids", ids, "--out", out)
            self.refuse(USAGE, ["--out", out, "--pixels"], "logits", self.base, "--ids", self.ids, "--pixels", ids, "--out", out)
            self.refuse(USAGE, ["--trace", out], "run", "-f", ids, "--trace", out)
        with open(ids, "rb") as file:
            self.assertEqual(file.read(), text)
            done = subprocess.run([self.lathe.program, "run", "--trace", ids], stdin=file, capture_output=True, check=False, env=self.lathe.environment)
        self.assertEqual((done.returncode, done.stdout), (USAGE, b""), done.stderr)
        self.assertEqual(self.content(ids), text)

    @staticmethod
    def content(path):
        with open(path, "rb") as file:
            return file.read()

    def test_outputs_do_not_go_into_the_model(self):
        model = clilib.copy_model(self.base, self.path("kept"))
        elsewhere = self.path("elsewhere.json")  # a folder of links, as model caches are made
        os.rename(os.path.join(model, "config.json"), elsewhere)
        os.symlink(elsewhere, os.path.join(model, "config.json"))
        os.symlink(model, self.path("kept_link"))
        os.link(os.path.join(model, "model.safetensors"), self.path("second_name"))
        before = {name: self.content(os.path.join(model, name)) for name in os.listdir(model)}
        places = [os.path.join(model, "config.json"), os.path.join(model, ".", "new.json"), self.path(os.path.join("kept_link", "model.safetensors")),
                  elsewhere, self.path("second_name")]
        for out in places:
            self.refuse(USAGE, ["--out", out, "folder of the model"], "logits", model, "--ids", self.ids, "--out", out)
            self.refuse(USAGE, ["--trace", out, "folder of the model"], "run", model, "-p", "hi", "--trace", out)
        self.assertEqual({name: self.content(os.path.join(model, name)) for name in os.listdir(model)}, before)

    def test_outputs_do_not_replace_settings_and_pictures(self):
        settings = self.write("kept_settings.json", b"{}")
        picture = self.write("kept.png", b"not read")
        self.refuse(USAGE, ["--trace", "--settings"], "run", "-p", "hi", "--settings", settings, "--trace", settings)
        self.refuse(USAGE, ["--out", "--settings"], "logits", self.base, "--ids", self.ids, "--settings", settings, "--out", settings)
        self.refuse(USAGE, ["--trace", "--image"], "run", "-p", "hi", "--image", self.path("other.png"), "--image", picture, "--trace", picture)
        self.assertEqual([self.content(settings), self.content(picture)], [b"{}", b"not read"])

    def test_inspect_of_a_config_alone(self):
        config = self.write("published.json", json.dumps(clilib.published_config()).encode())
        self.refuse(USAGE, ["'nope'", "scalar"], "inspect", config, "--isa", "nope")
        self.refuse(USAGE, ["'nope'", "LATHE_ISA", "scalar"], "inspect", config, env={"LATHE_ISA": "nope"})
        self.refuse(USAGE, ["1048577", "1048576"], "inspect", config, "-c", "1048577")
        self.refuse(USAGE, ["matmul=nope", "scalar"], "inspect", config, "--kernel", "matmul=nope")
        self.refuse(FAILURE, ["published.json", "directory"], "logits", config, "--ids", self.ids, "--out", self.path("o"))

    def test_pictures(self):
        bad = self.write("bad.png", b"\x89PNG\r\n\x1a\nnonsense")
        self.refuse(FAILURE, [bad], "run", "-p", "what?", "--image", bad)
        self.refuse(FAILURE, [self.ids, "PNG"], "run", "-p", "what?", "--image", self.ids)
        self.refuse(FAILURE, [self.path("none.png")], "run", "-p", "what?", "--image", self.path("none.png"))
        apple = os.path.join(self.lathe.data, "golden", "tiny", "apple.png")
        self.refuse(USAGE, ["prompt has", "context"], "run", "-p", "what?", "--context", "64", *["--image", apple] * 8)

    def test_logits(self):
        out = self.path("logits.safetensors")
        for words, ids in [(["line", "column"], b"[1, 2"), (["expected a list"], b'{"ids": [1]}'), (["entry 1", "-4"], b"[1, -4]"), (["entry 0", '"a"'], b'["a"]'),
                           (["512"], b"[1, 512]")]:
            self.refuse(FAILURE, ["bad_ids.json", *words], "logits", self.base, "--log-level", "error", "--ids", self.write("bad_ids.json", ids), "--out", out)
        for words, arguments in [(["chunk", "0"], ["--chunks", "2,0"]), (["--chunks", "'2,x'"], ["--chunks", "2,x"]), (["position", "4"], ["--at", "4"]), (["position", "-5"], ["--at=-5"]),
                                 (["--decode-from", "-7"], ["--decode-from", "-7"]), (["--mtp", "draft layer"], ["--mtp"])]:
            self.refuse(FAILURE if "--mtp" in words else USAGE, words, "logits", self.base, "--log-level", "error", "--ids", self.ids, "--out", out, *arguments)
        self.refuse(USAGE, ["--ids", "--out"], "logits", self.base)
        self.refuse(FAILURE, ["no_ids.json", "no ids"], "logits", self.base, "--log-level", "error", "--ids", self.write("no_ids.json", b"[]"), "--out", out)
        self.assertFalse(os.path.exists(out))

    def test_weights(self):
        weights = os.path.join(self.base, "model.safetensors")
        with open(weights, "rb") as file:
            data = file.read()
        name = "model.language_model.embed_tokens.weight"

        def cut(end):
            return clilib.copy_model(self.base, self.path(f"cut{end}"), change={"model.safetensors": data[:end]})

        for end in (len(data) - 1, 4096, 5, 0):
            self.refuse_model(FAILURE, [f"cut{end}/model.safetensors"], cut(end))

        def edited(what, edit):
            return clilib.copy_model(self.base, self.path(what), tensors=edit)

        def change(tensors, value):
            tensors[name] = value

        dtype, shape, values = clilib.read_tensors(weights)[name]
        self.assertEqual((dtype, shape), ("BF16", [512, 128]))
        self.refuse_model(FAILURE, [name, "u8"], edited("dtype", lambda t: change(t, ("U8", shape, values[: len(values) // 2]))))
        self.refuse_model(FAILURE, [name, "511"], edited("shape", lambda t: change(t, (dtype, [511, 128], values[:-256]))))
        self.refuse_model(FAILURE, [name], edited("missing", lambda t: t.pop(name)))
        self.refuse_model(FAILURE, ["model.surplus"], edited("extra", lambda t: t.update({"model.surplus": ("F32", [1], b"\0\0\0\0")})))

    def test_config(self):
        def model(what, change):
            return clilib.copy_model(self.base, self.path(what), change=change)

        def with_key(key, value):
            return lambda text: json.dumps(dict(json.loads(text), **{key: value}))

        self.refuse_model(FAILURE, ["config.json", "line"], model("broken", {"config.json": b'{"model_type": '}))
        self.refuse_model(FAILURE, ["config.json", "model_type"], model("list", {"config.json": b"[]"}))
        self.refuse_model(FAILURE, ["llama", "glm5_next"], model("llama", {"config.json": with_key("model_type", "llama")}))

        def without(key):
            def edit(text):
                config = json.loads(text)
                del config["text_config"][key]
                return json.dumps(config)

            return edit

        for key in ("index_kpool", "hidden_size", "swiglu_limit"):
            self.refuse_model(FAILURE, ["config.json", key], model("without_" + key, {"config.json": without(key)}))

    def test_text_files(self):
        builtin = self.lathe.builtin

        def refuse(words, what, change):
            self.refuse(FAILURE, words, "run", "-m", clilib.copy_model(builtin, self.path(what), change=change), "-p", "hi")

        refuse(["tokenizer.json", "line"], "tok_broken", {"tokenizer.json": b"{"})
        refuse(["tokenizer.json", "model"], "tok_empty", {"tokenizer.json": b"{}"})
        refuse(["chat_template.jinja", "line 1"], "template", {"chat_template.jinja": b"{% if %}"})

        def more_tokens(text):
            tokenizer = json.loads(text)
            tokenizer["added_tokens"].append(dict(tokenizer["added_tokens"][0], id=9000, content="<|beyond|>"))
            return json.dumps(tokenizer)

        refuse(["9000", "3584"], "vocabulary", {"tokenizer.json": more_tokens})
        refuse(["generation_config.json", "temperature"], "generation", {"generation_config.json": b'{"temperature": "warm"}'})
        self.refuse(FAILURE, ["no chat template", "--raw"], "run", "-m", clilib.copy_model(builtin, self.path("no_template"), without=("chat_template.jinja",)), "-p", "hi")


if __name__ == "__main__":
    BadInput.lathe = clilib.Lathe(sys.argv[1], sys.argv[2])
    unittest.main(argv=sys.argv[:1])
