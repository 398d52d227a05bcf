"""MFU: the share of a device's peak that a training run makes use of."""

import re
from typing import Any

import torch
from transformers import PreTrainedModel, TrainingArguments

from hf_linear_attn.training.flops import has_formula, training_flops

# Dense products of tensor cores with fp32 sums, and fp32 outside of them, in TFLOP/s, from NVIDIA's
# data sheets. Names are those that the driver reports; a device that is not here has no peak.
_PEAKS = {
    r"NVIDIA B200": {"16": 2250, "tf32": 1100, "fp32": 75},
    r"NVIDIA H200": {"16": 989, "tf32": 494, "fp32": 67},
    r"NVIDIA H100 80GB HBM3": {"16": 989, "tf32": 494, "fp32": 67},
    r"NVIDIA H100 PCIe": {"16": 756, "tf32": 378, "fp32": 51},
    r"NVIDIA A100-.*": {"16": 312, "tf32": 156, "fp32": 19.5},
    r"NVIDIA L40S": {"16": 362, "tf32": 183, "fp32": 91.6},
    r"NVIDIA L4": {"16": 121, "tf32": 60, "fp32": 30.3},
    r"NVIDIA RTX A6000": {"16": 154.8, "tf32": 77.4, "fp32": 38.7},
    # These have no bf16 and no TF32.
    r"Tesla V100-SXM2-.*": {"fp16": 125, "fp32": 15.7},
    r"Tesla T4": {"fp16": 65, "fp32": 8.1},
}


def device_peak(name: str, precision: str) -> float | None:
    """Peak of a device in TFLOP/s, None if it is not known.

    Args:
        name: as the driver reports it.
        precision: "bf16", "fp16", "tf32" or "fp32".
    """
    for pattern, peaks in _PEAKS.items():
        if re.fullmatch(pattern, name):
            short = "16" if precision in ("bf16", "fp16") else precision
            return peaks.get(precision, peaks.get(short))
    return None


def matmul_precision(args: TrainingArguments) -> str:
    """What the matrix products of a run are computed in: "bf16", "fp16", "tf32" or "fp32"."""
    if args.bf16 or args.fp16:
        return "bf16" if args.bf16 else "fp16"
    return "tf32" if _tf32_is_on() else "fp32"


def _tf32_is_on() -> bool:
    """Asked of torch: with torch_compile, TrainingArguments turn TF32 on and do not say so."""
    matmul = torch.backends.cuda.matmul
    precision = getattr(matmul, "fp32_precision", None)
    if precision is None:  # before torch 2.9
        return bool(matmul.allow_tf32)
    if precision == "none":  # nothing was set by name
        return torch.get_float32_matmul_precision() != "highest"
    return precision == "tf32"


class Utilisation:
    """Counts the work of training by formula and compares it with the peak of the devices.

    Args:
        model: see `flops.has_formula`.
        peak_tflops: of one device.
        processes: one device each.
    """

    def __init__(self, model: PreTrainedModel, peak_tflops: float, processes: int) -> None:
        self.model = model
        self.peak = peak_tflops * 1e12 * processes
        self._flops: torch.Tensor | None = None
        self._logged = (0.0, 0.0)

    def add(
        self,
        real_tokens: torch.Tensor,
        labels: torch.Tensor | None = None,
        seq_idx: torch.Tensor | None = None,
    ) -> None:
        """Count one batch.

        Args:
            real_tokens: (rows, …), whose sum over a row is its number of real tokens; with
                `seq_idx` (rows, seq), 1 = real.
            labels: of a language model, −100 where nothing is predicted.
            seq_idx: int (rows, seq), the document of each token where documents see no other.
        """
        if seq_idx is None:
            lengths = real_tokens.reshape(len(real_tokens), -1).sum(1)
        else:
            lengths = document_lengths(real_tokens, seq_idx)
        predicted = (labels != -100).sum() if labels is not None else None
        work = training_flops(self.model, lengths, predicted)
        self._flops = work if self._flops is None else self._flops + work

    @property
    def flops(self) -> torch.Tensor:
        """All work so far on this process, fp64 scalar; it stays on its device."""
        return torch.zeros((), dtype=torch.float64) if self._flops is None else self._flops

    def share(self, flops: float, seconds: float) -> float:
        """MFU of work done in a time of training."""
        return flops / max(seconds, 1e-9) / self.peak

    def since_last_log(self, flops: float, seconds: float) -> float:
        """MFU since the last call, given the work of all processes and the seconds so far."""
        before, start = self._logged
        self._logged = (flops, seconds)
        return self.share(flops - before, seconds - start)


def document_lengths(real_tokens: torch.Tensor, seq_idx: torch.Tensor) -> torch.Tensor:
    """Real tokens of each document, (rows · seq,), 0 behind the last document of a row.

    Args:
        real_tokens: (rows, seq), 1 = real.
        seq_idx: int (rows, seq); a new document begins where it changes.
    """
    begins = (seq_idx[:, 1:] != seq_idx[:, :-1]).long()
    document = torch.nn.functional.pad(begins, (1, 0)).cumsum(1)
    # As many places as there could be documents: nothing has to be looked at on the device.
    return torch.zeros_like(document).scatter_add_(1, document, real_tokens.long()).flatten()


def build_utilisation(
    model: Any, args: TrainingArguments, peak_tflops: float | None
) -> Utilisation | None:
    """The counter of a run; None where the peak or the work is not known.

    Args:
        model: the bare model.
        args: of the run: device, precision, number of processes.
        peak_tflops: of one device; None looks the device up.

    Raises:
        ValueError: a peak is given, but the model has an attention whose work is not known.
    """
    known = has_formula(getattr(model, "config", None))
    if peak_tflops is not None and not known:
        raise ValueError(
            f"peak_tflops {peak_tflops:g}: the work of this model's attention is not known, so "
            "there is no utilisation to log; leave peak_tflops out"
        )
    if peak_tflops is None and known and args.device.type == "cuda":
        name = torch.cuda.get_device_name(args.device)
        peak_tflops = device_peak(name, matmul_precision(args))
    if peak_tflops is None:
        return None
    return Utilisation(model, peak_tflops, args.world_size)
