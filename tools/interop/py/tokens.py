"""Counts o200k tokens with the library tiktoken, whose vocabulary comes from the package bpe-openai.

Reads a text as a JSON string from each line of standard input, and writes its number of tokens.
tiktoken checks the digest of the vocabulary.
"""

import gzip
import json
import os
import sys
from importlib import resources

os.environ["TIKTOKEN_CACHE_DIR"] = ""  # no cache

import tiktoken.load
from tiktoken_ext.openai_public import o200k_base

vocabulary = resources.files("bpe_openai") / "data" / "o200k_base.tiktoken.gz"
tiktoken.load.read_file = lambda _: gzip.decompress(vocabulary.read_bytes())
encoding = tiktoken.Encoding(**o200k_base())
for line in sys.stdin.buffer:
    print(len(encoding.encode_ordinary(json.loads(line))))
