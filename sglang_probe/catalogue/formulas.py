"""The bodies of `kv.profile` that a person has read, by fingerprint, and what each computes.

A fingerprint is added here only after its body was read against the formula that it is given: the terms of a body that
is not listed are captured all the same, but nobody vouches that there is no other term.
"""

from __future__ import annotations

from typing import Final, Literal

Formula = Literal["tokens-inline", "tokens", "bytes", "bytes-slack-floor", "bytes-slack-floor-multimodal"]

WHAT: Final[dict[Formula, str]] = {
    "tokens-inline": "tokens = int((available - pre_load x (1 - mem_fraction_static) - deductions) x 2^30"
    " // bytes_per_token)",
    "tokens": "tokens = int((available - pre_load x (1 - mem_fraction_static) - deductions) x 2^30) // bytes_per_token",
    "bytes": "bytes = int((available - pre_load x (1 - mem_fraction_static) - deductions) x 2^30)",
    "bytes-slack-floor": "bytes = int((available - slack - deductions) x 2^30), slack = pre_load x"
    " (1 - mem_fraction_static), for a mamba model sized after graph capture at least SGLang's reserve",
    "bytes-slack-floor-multimodal": "bytes = int((available - slack - deductions) x 2^30), slack = pre_load x"
    " (1 - mem_fraction_static), for a mamba model sized after graph capture at least SGLang's reserve",
}
"""Each formula with its terms' names. The deductions are `mamba` and, in the last one, `multimodal`."""

OF_THE_FAKES: Final[dict[str, Formula]] = {
    "e22cb3b67305cb24": "tokens",  # r0_5_9
    "c0b90ce54592f8c3": "bytes",  # r0_5_14
}
"""The stand-ins of `sglang_probe.testing`, ours: a test there holds them to their fingerprints."""

# Releases in the comments: first and last of those on the package index that have the body.
OF_RELEASES: Final[dict[str, Formula]] = {
    "20176b1dbfc7cb91": "tokens-inline",  # 0.4.3 to 0.4.4.post3
    "8dbcd250bb14285f": "tokens-inline",  # 0.4.4.post4 to 0.4.6.post1
    "84055c22f0bf7fb5": "tokens-inline",  # 0.4.6.post2 to 0.4.6.post3: a draft without MLA counts its own layers
    "5f0336c51c84c018": "tokens-inline",  # 0.4.6.post4: likewise
    "20db82bbc664a76e": "tokens-inline",  # 0.4.6.post5 to 0.4.10.post2
    "2eed0cc48584006a": "tokens-inline",  # 0.5.1 to 0.5.1.post3
    "fc3e45a9942e08b0": "tokens-inline",  # 0.5.2 to 0.5.3: mamba of a given size deducted here
    "c459d76cdb300f37": "tokens-inline",  # 0.5.3.post1: likewise; sparse attention's index counted
    "a032996b142a57b8": "tokens-inline",  # 0.5.3.post2 to 0.5.4.post2: mamba deducted by a method
    "f2dcab1181381b41": "tokens-inline",  # 0.5.4.post3 to 0.5.5.post2: FP4 with MLA
    "075a19855f2ff57f": "tokens-inline",  # 0.5.5.post3 to 0.5.6.post2: FP4 without it too
    "b777de1405259727": "tokens",  # 0.5.7
    "4dfa1e70eae01aca": "tokens",  # 0.5.8 to 0.5.9
    "98114e313f05b040": "tokens",  # 0.5.10 to 0.5.10.post1
    "1c27a43b0d45cf06": "bytes",  # 0.5.11 to 0.5.13.post1
    "0f183e07da1588f3": "bytes",  # 0.5.14 to 0.5.15.post1: raises where nothing is left
    "ee8a26a83fd14f22": "bytes-slack-floor",  # 0.5.16
    "ca06f6cad5f2b481": "bytes-slack-floor",  # 0.5.17
    "318fdacca592a673": "bytes-slack-floor-multimodal",  # 0.5.18
    "5e4515fd62e0ef87": "bytes-slack-floor-multimodal",  # 0.5.19 to 0.5.20: collects garbage first
    "72b369a04122797b": "bytes-slack-floor-multimodal",  # 0.5.21
    "b42515e9abb2f4d6": "bytes-slack-floor-multimodal",  # 0.5.22 to 0.5.23: no floor for some prefill servers
}

FORMULAS: Final[dict[str, Formula]] = OF_RELEASES | OF_THE_FAKES
