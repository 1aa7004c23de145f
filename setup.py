"""Build: the request path is compiled by mypyc and the record kernel by Cython when there is a C compiler (src/barnabas/native.py lists
both); everything else is in pyproject.toml. BARNABAS_BUILD=pure builds neither, BARNABAS_BUILD=kernel the kernel only, which takes
seconds. A failure to compile is a warning: the package works without."""

import glob
import os
import runpy
import sys
import sysconfig

from setuptools import Extension, setup

WANTED = os.environ.get("BARNABAS_BUILD", "all")


def source_of(module: str) -> str:
    return os.path.join("src", *module.split(".")) + ".py"


def compiled_modules() -> list[Extension]:
    if {"egg_info", "dist_info"} & set(sys.argv):
        return []  # only the metadata is asked for
    modules = runpy.run_path(os.path.join("src", "barnabas", "native.py"))
    extensions = []
    if WANTED in ("all", "kernel"):
        extensions += record_kernel(modules["KERNEL"])
    if WANTED == "all" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
        extensions += request_path(modules["MODULES"])
    for extension in extensions:
        extension.optional = True
    return extensions


def record_kernel(modules: tuple[str, ...]) -> list[Extension]:
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError
    except ImportError:
        print("barnabas: Cython is not there, the record kernel stays plain Python", file=sys.stderr)
        return []
    folder = os.path.join("src", "barnabas", "records", "kernel")
    includes = sorted(glob.glob(os.path.join(folder, "*.pxd")) + glob.glob(os.path.join(folder, "*.h")))
    extensions = [Extension(module, [source_of(module)], include_dirs=[folder], depends=includes) for module in modules]
    directives = {"boundscheck": False, "wraparound": False, "cdivision": True, "initializedcheck": False}
    try:
        return cythonize(extensions, build_dir="build", compiler_directives=directives, language_level=3)
    except CompileError as failure:
        print(
            f"barnabas: Cython refused the sources ({failure}), the record kernel stays plain Python", file=sys.stderr
        )
        return []


def request_path(modules: tuple[str, ...]) -> list[Extension]:
    try:
        from mypyc.build import mypycify
    except ImportError:
        print("barnabas: mypyc is not there, the request path stays plain Python", file=sys.stderr)
        return []
    sources = list(map(source_of, modules))
    try:
        return mypycify(["--strict", "--ignore-missing-imports", *sources], opt_level="2", group_name="barnabas")
    except SystemExit as failure:
        print(f"barnabas: mypyc refused the sources ({failure}), the request path stays plain Python", file=sys.stderr)
        return []


setup(ext_modules=compiled_modules())
