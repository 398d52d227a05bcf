"""Names that several copies of this code in one process must not share.

Beside the installed package there may be the copies that travel with models
(`trust_remote_code=True`). PyTorch's operators and Transformers' cache layers live in tables of the
whole process, in which each name has one owner.
"""

import hashlib

ROOT = __name__.rpartition(".")[0]
"""the package that holds this copy"""

IS_PACKAGE = ROOT == "hf_linear_attn"
"""False in code that came with a model"""

NAMESPACE = (
    "hf_linear_attn"
    if IS_PACKAGE
    else f"hf_linear_attn_{hashlib.sha256(ROOT.encode()).hexdigest()[:16]}"
)
"""of the operators; the same in every process that loads the copy from the same place"""
