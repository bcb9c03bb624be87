"""Builds the wheel: `analysis`, `app` and the bundled models go inside `focuscope`, file by file as they stand here.

Imports inside `analysis` are relative, so that it works under both names. The app and its workers are processes of
their own that start in the package's folder: `analysis` and `app` are found there at the top, as in the checkout.
"""

import shutil
from pathlib import Path

from setuptools import find_namespace_packages, setup
from setuptools.command.build_py import build_py

DATA = (".streamlit/config.toml", "models_cache/demo", "models_cache/demo-gpt2")  # folders that are no packages
LEFT_OUT = shutil.ignore_patterns("*.checkpoint", "work")


class Build(build_py):
    """setuptools' own, and the data beside the packages."""

    def run(self) -> None:
        super().run()
        for name in DATA:
            target = Path(self.build_lib, "focuscope", name)
            if Path(name).is_dir():
                shutil.copytree(name, target, ignore=LEFT_OUT, dirs_exist_ok=True)
            else:
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(name, target)


if __name__ == "__main__":
    inside = find_namespace_packages(include=["analysis*", "app*"], exclude=["*__pycache__*"])
    setup(
        packages=["focuscope", *(f"focuscope.{name}" for name in inside)],
        package_dir={"focuscope.analysis": "analysis", "focuscope.app": "app"},
        cmdclass={"build_py": Build},
    )
