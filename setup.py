"""Build: the request path is compiled by mypyc, the record kernel and the codec by Cython when there is a C compiler
(src/barnabas/native.py lists them); everything else is in pyproject.toml. BARNABAS_BUILD=pure builds neither, BARNABAS_BUILD=kernel only
what Cython compiles, which takes seconds. A failure to compile is a warning: the package works without."""

import glob
import os
import runpy
import sys
import sysconfig

from setuptools import Extension, setup

WANTED = os.environ.get("BARNABAS_BUILD", "all")
NO_DEBUG_INFO = ["-g0"]  # it would take half of the time that compiling takes


def source_of(module: str) -> str:
    stem = os.path.join("src", *module.split("."))
    return next(stem + ending for ending in (".py", ".pyx") if os.path.exists(stem + ending))


def compiled_modules() -> list[Extension]:
    if {"egg_info", "dist_info"} & set(sys.argv):
        return []  # only the metadata is asked for
    modules = runpy.run_path(os.path.join("src", "barnabas", "native.py"))
    extensions = []  # the longest first: they are compiled side by side
    if WANTED == "all" and not sysconfig.get_config_var("Py_GIL_DISABLED"):
        extensions += request_path(modules["MODULES"])
    if WANTED in ("all", "kernel"):
        extensions += by_cython(modules["KERNEL"], "the record kernel") + by_cython(modules["CODEC"], "the codec")
    for extension in extensions:
        extension.optional = True
    return extensions


def by_cython(modules: tuple[str, ...], what: str) -> list[Extension]:
    try:
        from Cython.Build import cythonize
        from Cython.Compiler.Errors import CompileError
    except ImportError:
        print(f"barnabas: Cython is not there, {what} stays plain Python", file=sys.stderr)
        return []
    extensions = []
    for module in modules:
        source = source_of(module)
        folder = os.path.dirname(source)
        includes = sorted(glob.glob(os.path.join(folder, "*.pxd")) + glob.glob(os.path.join(folder, "*.h")))
        extensions.append(
            Extension(module, [source], include_dirs=[folder], depends=includes, extra_compile_args=NO_DEBUG_INFO)
        )
    directives = {"boundscheck": False, "wraparound": False, "cdivision": True, "initializedcheck": False}
    try:
        return cythonize(extensions, build_dir="build", compiler_directives=directives, language_level=3)
    except CompileError as failure:
        print(f"barnabas: Cython refused the sources ({failure}), {what} stays plain Python", file=sys.stderr)
        return []


def request_path(modules: tuple[str, ...]) -> list[Extension]:
    try:
        from mypyc.build import mypycify
    except ImportError:
        print("barnabas: mypyc is not there, the request path stays plain Python", file=sys.stderr)
        return []
    sources = list(map(source_of, modules))
    try:
        flags = ["--strict", "--ignore-missing-imports"]
        return mypycify([*flags, *sources], opt_level="2", debug_level="0", group_name="barnabas")
    except SystemExit as failure:
        print(f"barnabas: mypyc refused the sources ({failure}), the request path stays plain Python", file=sys.stderr)
        return []


setup(ext_modules=compiled_modules(), options={"build_ext": {"parallel": os.cpu_count()}})
