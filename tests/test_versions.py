"""What pyproject.toml allows, constraints.txt pins, README.md says and the workflow runs is one."""

import re
import subprocess

import pytest
import yaml

from hf_linear_attn.kernels.support import OLDEST
from tests import versions
from tests.versions import ROOT, lowest, pinned, project, requirements

NAMES = {"torch": "PyTorch", "transformers": "Transformers", "accelerate": "Accelerate"}
JOBS = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text())["jobs"]


def allowed():
    return {r.name: r for r in (*requirements(), *requirements("dev"))}


def pythons():
    """Those that the classifiers name, the oldest first."""
    text = "\n".join(project()["classifiers"])
    return re.findall(r"^Programming Language :: Python :: (3\.\d+)$", text, re.MULTILINE)


def test_what_is_pinned_is_allowed():
    assert set(NAMES) <= set(pinned())
    for name, pin in pinned().items():
        assert pin in allowed()[name].specifier, name


def test_every_requirement_has_a_lower_bound():
    for requirement in allowed().values():
        assert lowest(requirement).release
    (triton,) = requirements("triton")
    assert lowest(triton).release == OLDEST


def test_readme_says_what_is_allowed():
    said = (ROOT / "README.md").read_text()
    for name, shown in NAMES.items():
        assert f"{shown} {lowest(allowed()[name])} or newer" in said
    assert "Transformers 5.24 or newer (below 6)" in said
    assert f"Python {pythons()[0]} or newer" in said
    assert str(allowed()["transformers"].specifier) in ("<6,>=5.24", ">=5.24,<6")


def test_every_tool_knows_the_oldest_python():
    settings = versions.settings()
    oldest = pythons()[0]
    assert project()["requires-python"] == f">={oldest}"
    assert settings["ruff"]["target-version"] == "py" + oldest.replace(".", "")
    assert settings["pyright"]["pythonVersion"] == oldest


def test_the_workflow_runs_both_ends_and_everything():
    matrix = JOBS["versions"]["strategy"]["matrix"]
    assert matrix == {"versions": ["oldest", "newest"], "python": [pythons()[0], pythons()[-1]]}
    commands = {name: [step.get("run", "") for step in job["steps"]] for name, job in JOBS.items()}
    assert any(run.startswith('make "$VERSIONS"') for run in commands["versions"])
    assert ".ci/run" in commands["check"]


@pytest.mark.parametrize(
    ("target", "resolution"), [("oldest", "lowest-direct"), ("newest", "highest")]
)
def test_make_resolves_checks_and_tests_each_end(target, resolution):
    command = ["make", "--dry-run", "UV=true", "TORCH_BACKEND=cpu", target]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    environment = f".venv-{target}"
    install = f"--resolution {resolution} --torch-backend cpu -e '.[test]'"
    words = re.sub(r"\s*\\\n\s*", " ", said)
    assert f"VIRTUAL_ENV={environment} true pip install --quiet {install}" in words
    assert f"{environment}/bin/python -m tests.versions {target}\n" in words
    assert f"{environment}/bin/python -m pytest -n 2\n" in words


@pytest.mark.parametrize(
    ("environment", "found", "message"),
    [
        ("oldest", "2.14.0", "torch is 2.14.0, the oldest that is allowed is 2.13"),
        ("oldest", "2.13.0+cpu", None),
        ("newest", "2.12.0", "torch is 2.12.0, constraints.txt has 2.13.0"),
        ("newest", "9.0", None),
    ],
)
def test_an_environment_is_what_it_was_made_for(environment, found, message, monkeypatch):
    monkeypatch.setattr(versions, "version", lambda name: found if name == "torch" else "0")
    lines = [line for line in versions.unfit(environment) if line.startswith("torch ")]
    assert lines == ([] if message is None else [message])


def test_what_is_missing_is_said(monkeypatch, capsys):
    def missing(name):
        raise versions.PackageNotFoundError(name)

    monkeypatch.setattr(versions, "version", missing)
    assert "torch is not installed" in versions.unfit("newest")
    assert versions.main(["latest"]) == 2
    assert "oldest|newest" in capsys.readouterr().err
