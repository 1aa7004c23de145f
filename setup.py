"""Build: the request path is compiled by mypyc when there is a C compiler (see src/barnabas/native.py); everything else is in
pyproject.toml. BARNABAS_BUILD=pure builds without it. A failure to compile is a warning: the package works without."""

import os
import runpy
import sys
import sysconfig

from setuptools import Extension, setup


def compiled_modules() -> list[Extension]:
    if {"egg_info", "dist_info"} & set(sys.argv):
        return []  # only the metadata is asked for
    if os.environ.get("BARNABAS_BUILD") == "pure" or sysconfig.get_config_var("Py_GIL_DISABLED"):
        return []
    try:
        from mypyc.build import mypycify
    except ImportError:
        print("barnabas: mypyc is not there, building plain Python", file=sys.stderr)
        return []
    modules = runpy.run_path(os.path.join("src", "barnabas", "native.py"))["MODULES"]
    sources = [os.path.join("src", *module.split(".")) + ".py" for module in modules]
    try:
        extensions = mypycify(["--strict", "--ignore-missing-imports", *sources], opt_level="2", group_name="barnabas")
    except SystemExit as failure:
        print(f"barnabas: mypyc refused the sources ({failure}), building plain Python", file=sys.stderr)
        return []
    for extension in extensions:
        extension.optional = True
    return extensions


setup(ext_modules=compiled_modules())
