"""Run wrong inputs and show the answers, or write the page of them.

python -m tests.hostile                 # all; a line each
python -m tests.hostile yaml tokenizer  # those whose name has one of the words
python -m tests.hostile --write         # docs/hostile-input.md, without running anything
"""

import sys
import tempfile
from pathlib import Path

from tests.hostile.cases import CASES
from tests.hostile.checks import fault, last_line
from tests.hostile.given import prepare
from tests.hostile.programs import serving
from tests.hostile.store import fill_store
from tests.hostile.table import PAGE, page


def main(words: list[str]) -> int:
    """The number of inputs that were not answered as the table says."""
    if words == ["--write"]:
        PAGE.write_text(page(), encoding="utf-8")
        return 0
    faults = 0
    with tempfile.TemporaryDirectory() as scratch, serving() as server:
        store = Path(scratch) / "store"
        fill_store(store)
        for case in CASES:
            if words and not any(word in case.name for word in words):
                continue
            folder = Path(scratch) / case.name
            prepare(folder, case, store)
            answer, found = fault(server, case, folder)
            faults += found is not None
            print(f"{'ok' if found is None else found}: {case.name}: {last_line(answer)}")
    return faults


if __name__ == "__main__":
    sys.exit(bool(main(sys.argv[1:])))
