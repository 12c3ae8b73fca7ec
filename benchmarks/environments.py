"""Virtual environments of the servers: one for each, with pinned versions, made on request."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

from .paths import ENVIRONMENTS, HERE, ROOT
from .verdicts import CannotServe

PROBE = """
import importlib.metadata as m, importlib.util, json, platform, sys, sysconfig
servery = importlib.util.find_spec("servery")
print(json.dumps({"servery": servery and servery.submodule_search_locations[0],
"python": platform.python_version(), "implementation": platform.python_implementation(),
    "gil": getattr(sys, "_is_gil_enabled", lambda: True)(),
    "free_threaded_build": bool(sysconfig.get_config_var("Py_GIL_DISABLED")),
    "versions": {d.metadata["Name"].lower().replace("_", "-"): d.version for d in m.distributions()}}))
"""


def pins() -> dict[str, list[str]]:
    """Requirements of each environment, with the frameworks."""
    table = tomllib.loads((HERE / "environments.toml").read_text("utf-8"))
    frameworks = table.pop("frameworks")
    return {name: [*entry["packages"], *frameworks] for name, entry in table.items()}


class Environments:
    """Finds the environments under one directory.

    A directory that is itself a virtual environment stands for all of them. The environment `servery` is
    the Python that runs the harness, unless one was made for it or another Python is given.
    """

    def __init__(self, directory: Path = ENVIRONMENTS, servery_python: str = "") -> None:
        self.directory = directory
        self.servery_python = servery_python
        self._facts: dict[str, dict[str, Any]] = {}

    def bin(self, name: str) -> Path:
        """The directory with the programs of an environment. Raises CannotServe if there is none."""
        if name == "floor":
            return Path()
        if name == "servery" and self.servery_python:
            return Path(self.servery_python).parent
        for candidate in (self.directory / name, self.directory):
            if (candidate / "bin" / "python").exists() and (name != "servery" or candidate.name == name):
                return candidate / "bin"
        if name == "servery":
            return Path(sys.executable).parent
        raise CannotServe(f"not installed here: python -m benchmarks env create {name}")

    def facts(self, name: str) -> dict[str, Any]:
        """Python, GIL and versions of an environment."""
        if name == "floor":
            return {"versions": {}}
        if name not in self._facts:
            command = [str(self.bin(name) / "python"), "-P", "-c", PROBE]
            made = subprocess.run(
                command, capture_output=True, text=True, check=True, env=clean_environment()
            )
            self._facts[name] = json.loads(made.stdout)
        return self._facts[name]

    def product(self) -> Path | None:
        """The folder of the servery that is measured, wherever its environment has it; or None."""
        try:
            folder = self.facts("servery")["servery"]
        except (OSError, subprocess.CalledProcessError):
            return None
        return Path(folder) if folder else None

    def versions(self, name: str) -> dict[str, str]:
        """Versions of what is pinned in an environment, and of servery."""
        wanted = {requirement.partition("==")[0].lower() for requirement in pins().get(name, [])}
        if name == "servery":
            wanted = {"servery", "uvloop", "starlette", "fastapi", "flask"}
        return {key: value for key, value in self.facts(name)["versions"].items() if key in wanted}

    def create(self, name: str, python: str = sys.executable) -> None:
        """Makes an environment anew.

        Raises subprocess.CalledProcessError if something cannot be installed.
        """
        target = self.directory / name
        if target.exists():
            shutil.rmtree(target)
        subprocess.run([python, "-m", "venv", str(target)], check=True)
        pip = [
            str(target / "bin" / "python"),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ]
        if name == "servery":
            frameworks = tomllib.loads((HERE / "environments.toml").read_text("utf-8"))["frameworks"]
            environment = {**os.environ, "SERVERY_BUILD_NATIVE": "require"}
            subprocess.run([*pip, f"{ROOT}[uvloop]", *frameworks], check=True, env=environment)
        else:
            subprocess.run([*pip, *pins()[name]], check=True)


def clean_environment(**more: str) -> dict[str, str]:
    """Of variables only those that no server reads as a setting."""
    kept = {
        name: os.environ[name] for name in ("PATH", "HOME", "TMPDIR", "LD_LIBRARY_PATH") if name in os.environ
    }
    return {**kept, "LANG": "C.UTF-8", **more}
