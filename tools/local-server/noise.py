#!/usr/bin/env python3
"""Writes a GGUF of random weights: the worst model there is, and small enough for any machine (2 MB).

    noise.py FILE

llama.cpp loads it like any other model, so everything around the weights is real: the chat template, the grammar made
from a JSON schema, the context limit, the stop reasons. The vocabulary is made from the manual and the prompts of this
project, so that texts have about as many tokens as for a real model. A constant share of the hidden state makes the quote,
the closing brackets and the end of the text likely, so that strings and lists end and replies get valid structure; what
they say is noise. Needs the packages `gguf` and `numpy`.
"""

import collections
import pathlib
import sys

import gguf
import numpy as np

ROOT = pathlib.Path(__file__).resolve().parents[2]
TEXTS = [ROOT / "README.md", *sorted(ROOT.glob("kb/*/*.md")), *sorted(ROOT.glob("src/research/prompts/*.md"))]
MERGES = 3_000
SPACE = "\u2581"

WIDTH, HIDDEN, LAYERS, HEADS = 64, 128, 2, 4
CONTEXT = 131_072
# Logits added to a token, whatever the state.
LIKELY = {'"': 6.5, "}": 6.0, "]": 6.0, ",": 4.0, "</s>": 5.0, SPACE: 4.0}
# A byte that is no character by itself is rare: a reply with one is refused by the server (status 500).
RARE_BYTE = -7.0

rng = np.random.default_rng(1)


def normal(*shape, deviation=0.05):
    return rng.normal(0, deviation, shape).astype(np.float32)


def merges():
    """Returns the pieces that byte-pair encoding of the texts makes, in order."""
    words = collections.Counter(SPACE + word for path in TEXTS for word in path.read_text().split() if word.isascii())
    parts = {word: list(word) for word in words}
    counts, places = collections.Counter(), collections.defaultdict(set)

    def count(word, sign):
        for pair in zip(parts[word], parts[word][1:]):
            counts[pair] += sign * words[word]
            places[pair].add(word)

    for word in parts:
        count(word, 1)
    made = {}
    for _ in range(MERGES):
        left, right = max(counts, key=counts.get)
        made[left + right] = None
        # Sorted, so that ties are resolved alike on every run.
        for word in sorted(places.pop((left, right))):
            count(word, -1)
            parts[word] = merged(parts[word], left, right)
            count(word, 1)
    return list(made)


def merged(pieces, left, right):
    """Returns the pieces with each neighbouring pair made one."""
    result = []
    for piece in pieces:
        if result and result[-1] == left and piece == right:
            result[-1] += right
        else:
            result.append(piece)
    return result


def vocabulary():
    """Returns the pieces with kind and score: three for control, every byte, printable ASCII and the merged ones."""
    kind = gguf.TokenType
    control = [("<unk>", kind.UNKNOWN, 0.0), ("<s>", kind.CONTROL, 0.0), ("</s>", kind.CONTROL, 0.0)]
    octets = [(f"<0x{byte:02X}>", kind.BYTE, 0.0) for byte in range(256)]
    # The tokenizer joins the pair with the highest score first.
    letters = [(letter, kind.NORMAL, -1e6) for letter in [SPACE, *map(chr, range(33, 127))]]
    return control + octets + letters + [(piece, kind.NORMAL, float(-rank)) for rank, piece in enumerate(merges())]


def write(path):
    tokens = vocabulary()
    names = [name for name, _, _ in tokens]
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("noise")
    writer.add_context_length(CONTEXT)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(HIDDEN)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_vocab_size(len(tokens))
    writer.add_file_type(gguf.LlamaFileType.ALL_F32)
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(names)
    writer.add_token_scores([score for _, _, score in tokens])
    writer.add_token_types([kind for _, kind, _ in tokens])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_chat_template(
        "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}\n{% endfor %}assistant:"
    )
    # The first dimension of every state is large and constant; after the norm it is close to the root of the width.
    embedding = normal(len(tokens), WIDTH)
    embedding[:, 0] = 1.0
    output = normal(len(tokens), WIDTH, deviation=0.2)
    is_byte = [kind == gguf.TokenType.BYTE for _, kind, _ in tokens]
    bias = [LIKELY.get(name, RARE_BYTE if rare else 0.0) for name, rare in zip(names, is_byte)]
    output[:, 0] = np.array(bias) / np.sqrt(WIDTH)
    writer.add_tensor("token_embd.weight", embedding)
    writer.add_tensor("output_norm.weight", np.ones(WIDTH, np.float32))
    writer.add_tensor("output.weight", output)
    for layer in range(LAYERS):
        shapes = {
            "attn_q": (WIDTH, WIDTH), "attn_k": (WIDTH, WIDTH), "attn_v": (WIDTH, WIDTH), "attn_output": (WIDTH, WIDTH),
            "ffn_gate": (HIDDEN, WIDTH), "ffn_up": (HIDDEN, WIDTH), "ffn_down": (WIDTH, HIDDEN),
        }
        for name, shape in shapes.items():
            writer.add_tensor(f"blk.{layer}.{name}.weight", normal(*shape))
        for name in ("attn_norm", "ffn_norm"):
            writer.add_tensor(f"blk.{layer}.{name}.weight", np.ones(WIDTH, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    write(sys.argv[1])
