#!/usr/bin/env python3
"""Tests of the checks: each is fed a small tree with one mistake and must name it, and the same tree without it must pass."""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import check_links
import check_parameters
import check_sizes
import check_words
import checklib

TOOLS = os.path.dirname(os.path.abspath(__file__))
README = "# Purpose, owns, does not know, invariants, threads, how to add\n"


class Example:
    """A throw-away tree without git that the checks look at instead of the project."""

    def __init__(self, files):
        self.root = tempfile.mkdtemp()
        with open(os.path.join(TOOLS, "layers.txt"), encoding="utf-8") as rules:
            self.write("tools/layers.txt", rules.read())
        self.write("tools/size_ratchet.txt", "")
        self.write("tools/parameter_ratchet.txt", "")
        for path, text in files.items():
            self.write(path, text)

    def write(self, path, text):
        full = os.path.join(self.root, path)
        os.makedirs(os.path.dirname(full), exist_ok=True)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)

    def run(self, check, *words):
        environment = dict(os.environ, LATHE_CHECK_ROOT=self.root)
        done = subprocess.run(
            [sys.executable, os.path.join(TOOLS, check), *words], env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False
        )
        shutil.rmtree(self.root)
        return done.returncode, done.stdout


class Layers(unittest.TestCase):
    def expect(self, files, sentence):
        full = {"src/base/README.md": README, "src/tensor/README.md": README, "src/base/a.h": "#pragma once\n"}
        full.update(files)
        code, text = Example(full).run("check_layers.py")
        if sentence is None:
            self.assertEqual(code, 0, text)
        else:
            self.assertEqual(code, 1, text)
            self.assertIn(sentence, text)

    def test_good_tree(self):
        self.expect({"src/tensor/t.h": '#pragma once\n#include <fmt/core.h>\n#include <vector>\n#include "base/a.h"\n'}, None)

    def test_upward_include(self):
        self.expect({"src/tensor/t.h": "#pragma once\n", "src/base/b.cc": '#include "tensor/t.h"\n'}, "base may not include tensor")

    def test_comments_do_not_include(self):
        self.expect({"src/tensor/t.h": "#pragma once\n", "src/base/b.cc": '// #include "tensor/t.h"\n/*\n#include "tensor/t.h"\n*/\n'}, None)

    def test_library_of_another_folder(self):
        self.expect({"src/tensor/t.cc": "#include <boost/json.hpp>\n"}, "<boost/json.hpp> belongs to config, not to tensor")

    def test_unknown_library(self):
        self.expect({"src/tensor/t.cc": "#include <Eigen/Core>\n"}, "<Eigen/Core> has no owner")

    def test_missing_file(self):
        self.expect({"src/tensor/t.cc": '#include "base/none.h"\n'}, "is no file under src/")

    def test_test_library_in_product(self):
        self.expect({"src/base/b.cc": "#include <gtest/gtest.h>\n"}, "belongs to tests")
        self.expect({"src/base/b_test.cc": "#include <gtest/gtest.h>\n"}, None)

    def test_reference_only_from_kernel_tests(self):
        files = {"src/kernels/ref/README.md": README, "src/kernels/cpu/README.md": README, "src/kernels/ref/r.h": "#pragma once\n"}
        self.expect({**files, "src/kernels/cpu/k_test.cc": '#include "kernels/ref/r.h"\n'}, None)
        self.expect({**files, "src/kernels/cpu/k.cc": '#include "kernels/ref/r.h"\n'}, "kernels/cpu may not include kernels/ref")

    def test_standard_mutex(self):
        self.expect({"src/tensor/t.cc": "std::mutex guard;\n"}, "base::Mutex")
        self.expect({"src/base/sync.cc": "std::mutex guard;\n"}, None)
        self.expect({"src/tensor/t.cc": "// std::mutex is refused\n"}, None)

    def test_throw(self):
        self.expect({"src/tensor/t.cc": "void f() { throw 1; }\n"}, "Result<T>")

    def test_unknown_folder(self):
        self.expect({"src/extra/x.cc": "int x;\n"}, "this folder is no layer")

    def test_missing_contract(self):
        self.expect({"src/text/x.cc": "int x;\n"}, "src/text: README.md contract lacks: purpose, owns")
        self.expect({"src/text/x.cc": "int x;\n", "src/text/README.md": README.replace("threads", "")}, "contract lacks: threads")

    def test_engine_reaches_no_json(self):
        files = {f"src/{layer}/README.md": README for layer in ("config", "engine", "models")}
        files["src/config/json.h"] = "#pragma once\n"
        files["src/config/settings.h"] = '#pragma once\n#include "config/json.h"\n'
        files["src/engine/e.cc"] = '#include "config/settings.h"\n'
        self.expect(files, "src/engine/e.cc -> src/config/settings.h -> config/json.h")

    def test_instruction_set_file_with_library_code(self):
        files = {"src/kernels/cpu/README.md": README}
        self.expect({**files, "src/kernels/cpu/dot_avx2.cc": "#include <immintrin.h>\n"}, None)
        self.expect({**files, "src/kernels/cpu/dot_avx2.cc": "#include <algorithm>\n"}, "dot_avx2.cc -> algorithm")
        files["src/kernels/cpu/helper.h"] = "#pragma once\n#include <vector>\n"
        self.expect({**files, "src/kernels/cpu/dot_avx2.cc": '#include "kernels/cpu/helper.h"\n'}, "src/kernels/cpu/helper.h -> vector")

    def test_header_cycle(self):
        files = {"src/base/p.h": '#pragma once\n#include "base/q.h"\n', "src/base/q.h": '#pragma once\n#include "base/p.h"\n'}
        self.expect(files, "include cycle: src/base/p.h -> src/base/q.h -> src/base/p.h")

    def test_link_dependency(self):
        self.expect({"src/base/CMakeLists.txt": "lathe_layer(base SOURCES a.cc DEPS tensor)\n"}, "base may not link tensor")

    def test_cycle_of_layers(self):
        self.expect({"tools/layers.txt": "layer base:\nlayer tensor: ops\nlayer ops: tensor\n"}, "cycle ops -> tensor -> ops")


class Sizes(unittest.TestCase):
    def long_function(self, lines):
        return "int f(int x) {\n" + "  x += 1;\n" * (lines - 2) + "}\n"

    def run_check(self, text, ratchet="", path="src/base/a.cc"):
        return Example({path: text, "tools/size_ratchet.txt": ratchet}).run("check_sizes.py")

    def test_function(self):
        self.assertEqual(self.run_check(self.long_function(70))[0], 0)
        code, text = self.run_check(self.long_function(71))
        self.assertEqual(code, 1)
        self.assertIn("src/base/a.cc:1: f() has 71 lines", text)

    def test_file(self):
        self.assertEqual(self.run_check("int x;\n" * 600)[0], 0)
        self.assertEqual(self.run_check("int x;\n" * 601)[0], 1)
        self.assertEqual(self.run_check("int x;\n" * 800, path="src/base/a_test.cc")[0], 0)
        self.assertEqual(self.run_check("int x;\n" * 801, path="src/base/a_test.cc")[0], 1)

    def test_ratchet(self):
        self.assertEqual(self.run_check(self.long_function(80), "function src/base/a.cc f 80\n")[0], 0)
        self.assertIn("grew from 80 to 81", self.run_check(self.long_function(81), "function src/base/a.cc f 80\n")[1])
        self.assertIn("down to 79", self.run_check(self.long_function(79), "function src/base/a.cc f 80\n")[1])
        self.assertIn("down to the limit", self.run_check(self.long_function(70), "function src/base/a.cc f 80\n")[1])

    def test_tighten(self):
        text = "# head\nfile a.cc 700 # why\nfunction b.cc f 90\n"
        self.assertEqual(check_sizes.tighten(text, {("file", "a.cc"): 650}), "# head\nfile a.cc 650 # why\n")

    def names(self, code):
        return [(name, lines) for name, _, lines in check_sizes.functions(code)]

    def test_what_is_a_function(self):
        self.assertEqual(self.names("namespace a {\nclass B : C<int(int)> {\n  int f() const {\n    return 1;\n  }\n};\n}\n"), [("f", 3)])
        self.assertEqual(self.names("const char* kTable[] = {\n" + '"}",\n' * 90 + "};\n"), [])
        self.assertEqual(self.names("enum class E {\n" + "kA,\n" * 90 + "};\n"), [])
        self.assertEqual(self.names("TEST(Suite, Name) {\n  if (a) {\n  }\n}\n"), [("TEST(Suite,Name)", 4)])
        self.assertEqual(self.names("#define M(x) \\\n  void x() {\\\n  }\nvoid g() {}\n"), [("g", 1)])
        self.assertEqual(self.names("template <class T, class = std::enable_if_t<(1 < 2)>>\nT h(T x) {\n  return x;\n}\n"), [("h", 4)])
        self.assertEqual(self.names("A::A(int x) : x_(x), y_(x) {\n  f([](int) {\n  });\n}\n"), [("A::A", 4)])


class Parameters(unittest.TestCase):
    def run_check(self, text, ratchet="", path="src/base/a.h"):
        return Example({path: text, "tools/parameter_ratchet.txt": ratchet}).run("check_parameters.py")

    def test_switches(self):
        for text in ("void f(bool quiet);", "T f(int a, const bool x = true) {\n}", "A(std::span<const T, 3> a, bool deep) : a_(a) {}", "explicit B(bool on);"):
            code, said = self.run_check(text + "\n")
            self.assertEqual(code, 1, text)
            self.assertIn("src/base/a.h:1: ", said)
        for text in ("V(bool value);", "int f(int a, bool fallback);", "bool f(int a);", "LATHE_TRY(const bool more, next(a));", "sort(a, [](bool x) { return x; });",
                     "for (bool more = true; more;) {\n}", "F<void(int, bool)> f;", "// f(bool x)", "struct S {\n  bool x;\n};"):
            self.assertEqual(self.run_check(text + "\n")[0], 0, text)
        self.assertEqual(self.run_check("void f(bool quiet);\n", path="src/kernels/cpu/a.h")[0], 0)
        self.assertEqual(self.run_check("void f(bool quiet);\n", path="src/base/a_test.cc")[0], 0)

    def test_long_lists(self):
        self.assertEqual(self.run_check("void f(int a, int b, std::map<int, int> c, const D& d);\n")[0], 0)
        five = "void f(int a, int b = 3, std::map<int, int> c,\n       const D& d, float (&e)[3]);\n"
        self.assertIn("src/base/a.h:1: f() takes 5 parameters", self.run_check(five)[1])
        self.assertEqual(self.run_check(five, "src/base/a.h f 5\n")[0], 0)
        self.assertIn("down to 5", self.run_check(five, "src/base/a.h f 6\n")[1])
        self.assertIn("down to the limit", self.run_check("int x;\n", "src/base/a.h f 5\n")[1])
        self.assertEqual(self.run_check("int x = f(a, b, 3, c + d, e);\ng(a * b, 1, 2, 3, 4);\n")[0], 0)

    def test_splitting(self):
        self.assertEqual(check_parameters.split("A<b, c> d, int (&e)[2], f = {1, 2}"), ["A<b, c> d", "int (&e)[2]", "f = {1, 2}"])


class Words(unittest.TestCase):
    def test_findings(self):
        for bad in ("// TO" + "DO later", "XX" + "X", 'open("/wo' + 'rk/x")', "cd /ho" + "me/me", 'f("/tm' + 'p/a")', "blank ", "<" * 7 + " a", "a\r"):
            self.assertTrue(check_words.check_text("a.cc", bad + "\n"), bad)
        self.assertTrue(check_words.check_text("a.cc", "\tx;\n"))
        self.assertTrue(check_words.check_text("a.cc", "no newline"))

    def test_no_findings(self):
        for good in ("artwork/x", "https://example.org/ho" + "me/me", "METODO", "a / b", "$ROOT/wo" + "rk/x", "\\uXXXX"):
            self.assertEqual(check_words.check_text("a.md", good + "\n"), [])
        self.assertEqual(check_words.check_text("Makefile", "\tx\n"), [])


class Links(unittest.TestCase):
    def test_links(self):
        good = "# A b\n[x](docs/b.md) [y](#a-b) [z](https://example.org) `[no](none.md)` [w](docs/b.md#c)\n"
        self.assertEqual(Example({"a.md": good, "docs/b.md": "# C\n"}).run("check_links.py")[0], 0)
        code, text = Example({"a.md": "[x](docs/none.md)\n"}).run("check_links.py")
        self.assertEqual((code, "docs/none.md" in text), (1, True))
        code, text = Example({"a.md": "# A\n[x](#b)\n"}).run("check_links.py")
        self.assertEqual((code, "no heading '#b'" in text), (1, True))

    def test_anchor(self):
        self.assertEqual(check_links.anchors("## What may include `what`, and why\n"), {"what-may-include-what-and-why"})


class Isa(unittest.TestCase):
    CODE = "template <class T> T twice(T x) { return x + x; }\ntemplate int twice<int>(int);\n"

    def build(self, code, flags):
        example = Example({"src/kernels/cpu/dot_avx2.cc": code})
        source, target = (os.path.join(example.root, name) for name in ("src/kernels/cpu/dot_avx2.cc", "dot.o"))
        subprocess.run(["g++", "-O2", *flags, "-c", source, "-o", target], check=True)
        command = " ".join(["g++", "-O2", *flags, "-c", source, "-o", "dot.o"])
        example.write("compile_commands.json", f'[{{"directory": "{example.root}", "file": "{source}", "command": "{command}"}}]\n')
        return example.run("check_isa.py", example.root)

    def test_weak_symbol(self):
        code, text = self.build(self.CODE, ["-mavx2"])
        self.assertEqual(code, 1, text)
        self.assertIn("weak symbol int twice<int>(int)", text)
        self.assertEqual(self.build("int twice(int x) { return x + x; }\n", ["-mavx2"])[0], 0)

    def test_missing_flag(self):
        self.assertIn("compiled without its flag", self.build("int x;\n", [])[1])


class Blanking(unittest.TestCase):
    def test_literals(self):
        self.assertEqual(checklib.blank_literals('f("a{b"); // {\n'), 'f("");  \n')
        self.assertEqual(checklib.blank_literals("x = 1'000'000 + '{';"), "x = 1'000'000 + '';")
        self.assertEqual(checklib.blank_literals('R"(a\n{)" b').count("\n"), 1)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0]], verbosity=1)
