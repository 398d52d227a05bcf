"""What the text of the kernels must say, looked at without Triton."""

import ast
from pathlib import Path

KERNELS = sorted((Path(__file__).parents[1] / "hf_linear_attn" / "kernels").glob("*.py"))


def products(tree):
    """Calls of `tl.dot` and `tl.dot_scaled`."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("tl.dot"):
            yield node


def test_no_product_in_fp32_is_one_in_tf32():
    """Triton's default drops 13 bits of fp32 operands without a word."""
    found = 0
    for file in KERNELS:
        for node in products(ast.parse(file.read_text(encoding="utf-8"))):
            named = {k.arg: ast.unparse(k.value) for k in node.keywords}
            assert named.get("input_precision") == "'ieee'", f"{file.name}:{node.lineno}"
            assert "allow_tf32" not in named, f"{file.name}:{node.lineno}"
            found += 1
    assert found >= 10
