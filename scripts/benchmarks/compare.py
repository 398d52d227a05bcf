"""Suite `compare`: other efficient attentions, and other packages' kernels, against ours.

Two of them come with Transformers, others are compared where they are installed: each is named
with what became of it. The ratio is the other's time over ours.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from torch import Tensor, nn
from transformers import LongformerConfig, NystromformerConfig

from benchmarks.bench import Bench, Case, Settings
from benchmarks.cores import draw, forward_backward
from benchmarks.layers import WITHOUT_DROPOUT, hidden_states, own_config, shape, stock_model
from benchmarks.layers import forward_backward as through_model
from benchmarks.official import cases as official_cases
from benchmarks.peers import PEERS, Peer

LENGTHS = (1024, 4096)
OFFICIAL = "official cosFormer layer"
# Of the checkpoints of both papers.
LONGFORMER_WINDOW, LANDMARKS, KERNEL = 512, 64, 33


def cases(settings: Settings) -> list[Case]:
    """The official layer if its file is given, stock models, other packages."""
    lengths = settings.lengths_or(LENGTHS)
    for n in lengths:
        # Its landmarks are means of segments of one size, and with one token each it is softmax.
        if n % LANDMARKS or n == LANDMARKS:
            raise ValueError(
                f"--lengths {n}: the stock Nyströmformer of suite compare needs a multiple of "
                f"{LANDMARKS} above {LANDMARKS}"
            )
    return [
        Case(OFFICIAL, _name_official),
        *(official_cases(settings) if settings.official is not None else []),
        *(
            Case(f"one-layer models, {n:,} tokens", partial(_stock_models, length=n))
            for n in lengths
        ),
        *(
            Case(f"{peer.package}, {n:,} tokens", partial(_package, peer=peer, length=n))
            for peer in PEERS
            for n in lengths
        ),
    ]


def _name_official(bench: Bench) -> None:
    given = bench.settings.official is not None
    bench.results.peers[OFFICIAL] = "compared" if given else "not given (--official PATH)"


def _stock_models(bench: Bench, *, length: int) -> None:
    """Models of one layer, from token vectors on: each brings its own embeddings and padding."""
    settings = bench.settings
    x, grad = hidden_states(settings, length)
    fields: dict[str, Any] = {**shape(settings, 1), **WITHOUT_DROPOUT, "vocab_size": 8}
    nystromformer = NystromformerConfig(
        **fields, max_position_embeddings=length, num_landmarks=LANDMARKS,
        segment_means_seq_len=length, conv_kernel_size=KERNEL,
    )  # fmt: skip
    # It pads to whole windows, and counts positions from the row behind the pad's.
    padded = -(-length // LONGFORMER_WINDOW) * LONGFORMER_WINDOW
    longformer = LongformerConfig(
        **fields, max_position_embeddings=padded + 2, pad_token_id=1,
        attention_window=[LONGFORMER_WINDOW],
    )  # fmt: skip
    models = {
        "nystromformer": stock_model(nystromformer, settings),
        "longformer": stock_model(longformer, settings),
        **{
            name: stock_model(own_config(name, settings, length, 1, vocab_size=8), settings)
            for name in ("nystrom", "cosformer")
        },
    }
    timings = bench.race(
        {name: through_model(m, _last_hidden(m), x, grad) for name, m in models.items()}
    )
    bench.record_times(timings, f"compare/{{name}}/{length}")
    for theirs, ours in (("nystromformer", "nystrom"), ("longformer", "cosformer")):
        bench.results.peers[f"{theirs} (Transformers)"] = "compared"
        bench.results.paired(
            f"compare/{theirs}/{ours}/{length}", timings.ratio(theirs, ours),
            f"stock {theirs} / {ours}, one layer, {length:,} tokens, forward + backward",
        )  # fmt: skip


def _last_hidden(model: nn.Module) -> Callable[[Tensor], Tensor]:
    return lambda x: model(inputs_embeds=x).last_hidden_state


def _package(bench: Bench, *, peer: Peer, length: int) -> None:
    core = peer.find(bench.settings)
    if isinstance(core, str):
        bench.results.peers[peer.package] = core
        return
    inputs = draw(bench.settings, length)
    try:
        forward_backward(core, inputs, causal=peer.causal)()
    except Exception as error:  # whatever another package raises is for its name to say
        reason = " ".join(str(error).split())[:200]
        bench.results.peers[peer.package] = f"fails here: {type(error).__name__}: {reason}"
        return
    bench.results.peers[peer.package] = "compared"
    cores = {peer.package: core, **peer.ours}
    timings = bench.race(
        {name: forward_backward(c, inputs, causal=peer.causal) for name, c in cores.items()}
    )
    kind = "causal" if peer.causal else "bidirectional"
    bench.record_times(timings, f"compare/{kind}/{peer.package}/{{name}}/{length}")
    for name in peer.ours:
        bench.results.paired(
            f"compare/{peer.package}/{name}/{length}", timings.ratio(peer.package, name),
            f"{peer.package} / {name}, {kind}, {length:,} tokens, forward + backward",
        )  # fmt: skip
