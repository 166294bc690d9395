"""llama.cpp's tokens of a decoder with random weights, of the shapes of ours/decoder.lua.

usage: llama_cpp.py BLOCKS DTYPE [SHAPE]    32 tokens are written after 128, one at a time; DTYPE bfloat16, int8 (Q8_0)
                                            or nf4 (Q4_0, 4.5 bits a weight), for the layers' weights; the rest of the
                                            matrices is bfloat16, as there; SHAPE 135m (default) or 0.5b

LLAMA_CPP is a folder of llama.cpp with its gguf-py and, in build/bin, llama-bench (cmake -B build -DGGML_NATIVE=ON,
target llama-bench; the sdist of llama-cpp-python has it in vendor/llama.cpp). Threads come from OMP_NUM_THREADS.
Prints the median of BLOCKS means, of elapsed time.
"""
import json
import os
import statistics
import subprocess
import sys
import tempfile

import numpy

ROOT = os.environ["LLAMA_CPP"]
sys.path.insert(0, ROOT + "/gguf-py")
import gguf  # noqa: E402  pylint: disable=import-error,wrong-import-position

SHAPES = {  # vocabulary, width, inner width, layers, heads, heads of keys and values
    "135m": (49152, 576, 1536, 30, 9, 3),
    "0.5b": (151936, 896, 4864, 24, 14, 2),
}
KINDS = gguf.GGMLQuantizationType
TYPES = {"bfloat16": KINDS.BF16, "int8": KINDS.Q8_0, "nf4": KINDS.Q4_0}


def write(path, dtype, shape):
    """Write a model's file."""
    words, width, inner, layers, heads, groups = SHAPES[shape]
    draws = numpy.random.default_rng(1)
    file = gguf.GGUFWriter(path, "llama")
    file.add_vocab_size(words)
    file.add_context_length(8192)
    file.add_embedding_length(width)
    file.add_feed_forward_length(inner)
    file.add_block_count(layers)
    file.add_head_count(heads)
    file.add_head_count_kv(groups)
    file.add_layer_norm_rms_eps(1e-5)
    file.add_rope_freq_base(100000.0)
    file.add_rope_dimension_count(width // heads)
    file.add_tokenizer_model("none")

    def matrix(name, rows, columns, kind):
        numbers = (0.02 * draws.standard_normal((rows, columns))).astype(numpy.float32)
        file.add_tensor(name, gguf.quants.quantize(numbers, kind), raw_dtype=kind)

    def norm(name):
        file.add_tensor(name, numpy.ones(width, numpy.float32))

    matrix("token_embd.weight", words, width, KINDS.BF16)
    norm("output_norm.weight")
    keys, kind = width // heads * groups, TYPES[dtype]
    for i in range(layers):
        norm(f"blk.{i}.attn_norm.weight")
        norm(f"blk.{i}.ffn_norm.weight")
        for name, rows, columns in (("attn_q", width, width), ("attn_k", keys, width), ("attn_v", keys, width),
                                    ("attn_output", width, width), ("ffn_gate", inner, width),
                                    ("ffn_up", inner, width), ("ffn_down", width, inner)):
            matrix(f"blk.{i}.{name}.weight", rows, columns, kind)
    file.write_header_to_file()
    file.write_kv_data_to_file()
    file.write_tensors_to_file()
    file.close()


def main():
    blocks, dtype = int(sys.argv[1]), sys.argv[2]
    shape = sys.argv[3] if len(sys.argv) > 3 else "135m"
    with tempfile.TemporaryDirectory() as folder:
        path = folder + "/model.gguf"
        write(path, dtype, shape)
        out = subprocess.run(
            [ROOT + "/build/bin/llama-bench", "-m", path, "-p", "0", "-n", "32", "-d", "128", "-r", str(blocks), "-o",
             "json", "-t", os.environ.get("OMP_NUM_THREADS", "1")],
            check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL).stdout
    print("token_elapsed_ms", 1e3 / statistics.median(json.loads(out)[0]["samples_ts"]))


main()
