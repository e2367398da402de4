"""Running lathe and making broken model folders, for the tests of the command line."""

import json
import math
import os
import pty
import shutil
import struct
import subprocess
import tempfile
import unittest

SIZES = {"F64": 8, "F32": 4, "I64": 8, "I32": 4, "BF16": 2, "F16": 2, "F8_E4M3": 1, "U8": 1, "I8": 1}

LONGEST_S = 1500  # of one run; under sanitizers `selftest` takes minutes, and ctest has its own limit for the whole test


class Lathe:
    """One program and the folder of the project's data."""

    def __init__(self, program, source):
        self.program = os.path.abspath(program)
        self.data = os.path.join(os.path.abspath(source), "data")
        self.builtin = os.path.join(self.data, "builtin")
        self.environment = {k: v for k, v in os.environ.items() if not k.startswith("LATHE_")}

    def run(self, *arguments, stdin=b"", timeout=LONGEST_S, env=None):
        """The finished process; stdout and stderr are bytes."""
        environment = dict(self.environment, **(env or {}))
        return subprocess.run([self.program, *arguments], input=stdin, capture_output=True, timeout=timeout, check=False, env=environment)

    def good(self, *arguments, **options):
        """stdout of a run that must succeed."""
        done = self.run(*arguments, **options)
        if done.returncode != 0:
            raise AssertionError(f"lathe {' '.join(arguments)}: exit code {done.returncode}: {done.stderr.decode(errors='replace')}")
        return done.stdout.decode()

    def on_terminal(self, *arguments, timeout=LONGEST_S):
        """What a successful run writes to standard error when that is a terminal."""
        master, slave = pty.openpty()
        with subprocess.Popen([self.program, *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=slave, env=self.environment) as process:
            os.close(slave)
            said = b""
            while True:
                try:
                    piece = os.read(master, 65536)
                except OSError:  # how a closed terminal ends
                    piece = b""
                if not piece:
                    break
                said += piece
            code = process.wait(timeout)
        os.close(master)
        if code != 0:
            raise AssertionError(f"lathe {' '.join(arguments)}: exit code {code}: {said.decode(errors='replace')}")
        return said

    def json(self, *arguments, **options):
        return json.loads(self.good(*arguments, **options))


def read_tensors(path):
    """Tensors of a safetensors file as {name: (dtype, shape, bytes)}."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        data = file.read()
    header.pop("__metadata__", None)
    return {name: (t["dtype"], t["shape"], data[t["data_offsets"][0]:t["data_offsets"][1]]) for name, t in header.items()}


def write_tensors(path, tensors):
    header, at = {}, 0
    for name, (dtype, shape, data) in tensors.items():
        assert math.prod(shape) * SIZES[dtype] == len(data)
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for _, _, data in tensors.values():
            file.write(data)


def copy_model(source, target, change=None, tensors=None, without=()):
    """Copies a model folder. `change` maps a file to its new bytes, or to a function of the old text; `tensors` edits the weights."""
    os.makedirs(target)
    for name in os.listdir(source):
        path = os.path.join(source, name)
        if name in without or os.path.isdir(path):
            continue
        if tensors is not None and name == "model.safetensors":
            table = read_tensors(path)
            tensors(table)
            write_tensors(os.path.join(target, name), table)
        elif name == "model.safetensors" and name not in (change or {}):
            os.symlink(path, os.path.join(target, name))
        else:
            shutil.copy(path, os.path.join(target, name))
    for name, new in (change or {}).items():
        path = os.path.join(target, name)
        if callable(new):
            with open(path, encoding="utf-8") as file:
                new = new(file.read()).encode()
        if os.path.islink(path):
            os.remove(path)
        with open(path, "wb") as file:
            file.write(new)
    return target


def published_config():
    """config.json of the FP8 release, from its published dimensions."""
    sparse = [i % 4 == 3 for i in range(45)]
    text = {
        "model_type": "glm5_next_text", "dtype": "bfloat16", "vocab_size": 154880, "hidden_size": 4096, "intermediate_size": 12288, "moe_intermediate_size": 2048,
        "num_hidden_layers": 45, "num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 0, "qk_head_dim": 256, "qk_nope_head_dim": 256,
        "qk_rope_head_dim": 0, "v_head_dim": 256, "q_lora_rank": 1536, "kv_lora_rank": 512, "mla_use_nope": True, "attention_bias": False, "hidden_act": "silu",
        "swiglu_limit": 10.0, "rms_norm_eps": 1e-5, "max_position_embeddings": 1048576, "n_routed_experts": 288, "n_shared_experts": 1,
        "num_experts_per_tok": 8, "n_group": 1, "topk_group": 1, "norm_topk_prob": True, "routed_scaling_factor": 2.5, "scoring_func": "sigmoid",
        "topk_method": "noaux_tc", "moe_router_dtype": "float32", "first_k_dense_replace": 3, "mlp_layer_types": ["dense"] * 3 + ["sparse"] * 42,
        "layer_types": ["deepseek_sparse_attention" if s else "linear_attention" for s in sparse], "indexer_types": ["full"] * 45, "index_n_heads": 32,
        "index_head_dim": 128, "index_topk": 2048, "index_kpool": 4, "index_kpool_compress": True, "index_kpool_always_select_tail": True,
        "index_share_for_mtp_iteration": True, "indexer_rope_interleave": True, "mhc": True, "hc_mult": 4, "hc_eps": 1e-6, "hc_sinkhorn_iters": 20,
        "num_nextn_predict_layers": 1, "eos_token_id": [154820, 154827, 154829], "pad_token_id": 154820,
        "linear_attn_config": {"num_heads": 64, "head_dim": 128, "short_conv_kernel_size": 4, "gate_lower_bound": -5.0,
                               "kda_layers": [i for i in range(45) if not sparse[i]], "full_attn_layers": [i for i in range(45) if sparse[i]]},
    }
    vision = {
        "model_type": "glm5_next_vision", "depth": 24, "hidden_size": 1024, "num_heads": 16, "intermediate_size": 4096, "out_hidden_size": 4096,
        "projection_intermediate_size": 10240, "patch_size": 14, "temporal_patch_size": 2, "spatial_merge_size": 2, "image_size": 448, "in_channels": 3,
        "attention_bias": True, "hidden_act": "silu", "swiglu_limit": 10.0, "rms_norm_eps": 1e-5,
    }
    return {
        "architectures": ["Glm5NextForConditionalGeneration"], "model_type": "glm5_next", "tie_word_embeddings": False, "image_token_id": 154854,
        "video_token_id": 154855, "image_start_token_id": 154830, "image_end_token_id": 154831, "video_start_token_id": 154832,
        "video_end_token_id": 154833, "transformers_version": "5.16.0", "text_config": text, "vision_config": vision,
        "quantization_config": {"quant_method": "fp8", "fmt": "e4m3", "activation_scheme": "dynamic", "weight_block_size": [128, 128],
                                "modules_to_not_convert": ["lm_head", "model.embed_tokens"] + [f"model.layers.{i}.mlp.gate" for i in range(3, 46)]},
    }


class Case(unittest.TestCase):
    """Tests with a folder of their own."""

    lathe = None  # set by main

    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.TemporaryDirectory(prefix="lathe_cli_")  # pylint: disable=consider-using-with
        cls.base = os.path.join(cls.lathe.data, "golden", "base")

    @classmethod
    def tearDownClass(cls):
        cls.folder.cleanup()

    @classmethod
    def path(cls, name):
        return os.path.join(cls.folder.name, name)

    @classmethod
    def write(cls, name, data):
        with open(cls.path(name), "wb") as file:
            file.write(data)
        return cls.path(name)
