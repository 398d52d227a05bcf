"""The file that Transformers is pointed to in a folder that carries its code."""

from collections.abc import Sequence

ENTRY = "modeling_hf_linear_attn"
"""its name without the ending, as in `auto_map`"""

CODE = "hf_linear_attn_code"
"""the file beside it that has the classes"""

PYTHON = (3, 11)
TRANSFORMERS = ">=5.24,<6"

_TEXT = '''"""Models of hf_linear_attn {version}, for loading with trust_remote_code=True.

A process that has imported hf_linear_attn uses that package's classes, whatever its version, and
never reads this file. In others the package is used where it is installed in this version or a
newer one, and with it its kernels; elsewhere the code of this folder is.
"""

import sys

import transformers
from packaging.specifiers import SpecifierSet
from packaging.version import Version

if sys.version_info < {python}:
    raise ImportError("this model's code needs Python {python_text} or newer")
if not SpecifierSet("{transformers}").contains(transformers.__version__, prereleases=True):
    raise ImportError(
        "this model's code needs transformers{transformers}; installed is "
        f"{{transformers.__version__}}: pip install -U 'transformers{transformers}'"
    )
try:
    import hf_linear_attn as installed
except ModuleNotFoundError as error:
    if error.name != "hf_linear_attn":
        raise
    installed = None
if getattr(installed, "__version__", None) is None:
    installed = None  # a folder that happens to have this name
if installed is not None and Version(installed.__version__) < Version("{version}"):
    transformers.utils.logging.get_logger(__name__).warning(
        "This model comes with code of hf_linear_attn {version}, which is used; the installed "
        f"{{installed.__version__}} is older, so its kernels are not: pip install -U hf-linear-attn"
    )
    installed = None

if installed is None:
    {statement} (
{imported}
    )
else:
{taken}

__all__ = [
{listed}
]
'''


def entry_text(names: Sequence[str], version: str) -> str:
    """The file's text.

    Args:
        names: of the classes: a config and its models.
        version: of the code.
    """
    return _TEXT.format(
        # Transformers takes any line that looks like an import of a file beside it for one.
        statement=f"from .{CODE} import",
        version=version,
        python=PYTHON,
        python_text=".".join(map(str, PYTHON)),
        transformers=TRANSFORMERS,
        imported="\n".join(f"        {name}," for name in names),
        taken="\n".join(f"    {name} = installed.models.{name}" for name in names),
        listed="\n".join(f'    "{name}",' for name in names),
    )
