#!/usr/bin/env python3
"""Installs the build into an empty prefix and uses it as a stranger would: by find_package and by pkg-config.

Usage: install_test.py BUILD ROOT COMPILER
"""
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

MODEL = "models/SmolLM2-135M-Instruct.Q4_1.gguf"


def run(*command, **options):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: exit code {done.returncode}\n{done.stdout}")
    return done.stdout


def check_files(prefix, library_folder, shared):
    installed = {os.path.relpath(os.path.join(folder, name), prefix) for folder, _, names in os.walk(prefix) for name in names}
    expected = {"bin/pop", "include/pop/pop.h", "include/pop/engine/options.h", "include/pop/engine/results.h", "share/man/man1/pop.1", f"{library_folder}/pkgconfig/pop.pc",
                f"{library_folder}/cmake/pop/popConfig.cmake", f"{library_folder}/cmake/pop/popConfigVersion.cmake",
                f"{library_folder}/libpop.{'so' if shared else 'a'}"}
    missing = expected - installed
    surplus = {name for name in installed - expected
               if not re.fullmatch(rf"{library_folder}/(libpop\.so[.0-9]*|cmake/pop/popTargets(-\w+)?\.cmake)", name)}
    if missing or surplus:
        sys.exit(f"the installation: missing {sorted(missing)}, not expected {sorted(surplus)}")
    for name in installed:
        if name.endswith((".cmake", ".pc", ".h")) or name.startswith("share/man/"):  # libpop.so.0.1 is no page
            text = open(os.path.join(prefix, name), encoding="utf-8").read()
            if prefix in text:
                sys.exit(f"{name} names the folder it was installed into: it could not be moved")


def check_man_page(prefix, version):
    text = open(f"{prefix}/share/man/man1/pop.1", encoding="utf-8").read()
    plain = text.replace("\\-", "-").replace("\\e", "\\")
    for part in [version, ".SH NAME", ".SS pop demo", ".SS pop run", "--ratio"]:
        if part not in plain:
            sys.exit(f"pop.1: expected to find '{part}'")
    if shutil.which("man"):
        warnings = subprocess.run(["man", "--warnings", "-E", "UTF-8", "-l", "-Tutf8", f"{prefix}/share/man/man1/pop.1"],
                                  capture_output=True, text=True, check=False, env=dict(os.environ, MANWIDTH="120"))
        if warnings.returncode != 0 or warnings.stderr.strip():
            sys.exit(f"man pop.1: {warnings.stderr}")


def main():
    build, root, compiler = sys.argv[1:]
    cache = dict(re.findall(r"^(\w+):\w+=(.*)$", open(f"{build}/CMakeCache.txt", encoding="utf-8").read(), re.M))
    version = cache["CMAKE_PROJECT_VERSION"]
    library_folder = cache.get("CMAKE_INSTALL_LIBDIR", "lib")
    shared = cache.get("BUILD_SHARED_LIBS", "OFF") == "ON"
    model = os.path.abspath(f"{root}/{MODEL}")
    arguments = [version] + ([model] if os.path.exists(model) else [])
    with tempfile.TemporaryDirectory(prefix="pop-install-") as folder:
        prefix, source = f"{folder}/prefix", f"{folder}/source"
        run("cmake", "--install", build, "--prefix", prefix)
        check_files(prefix, library_folder, shared)
        check_man_page(prefix, version)
        # The library must be found where it lies now, not where it was put first.
        moved = f"{folder}/moved"
        os.rename(prefix, moved)
        environment = dict(os.environ, LD_LIBRARY_PATH=f"{moved}/{library_folder}")

        os.mkdir(source)
        shutil.copy(f"{root}/tests/install/consumer.cpp", source)
        project = open(f"{root}/tests/install/CMakeLists.txt.in", encoding="utf-8").read()
        with open(f"{source}/CMakeLists.txt", "w", encoding="utf-8") as file:
            file.write(project.replace("@POP_VERSION@", version))
        run("cmake", "-S", source, "-B", f"{folder}/by-cmake", f"-DCMAKE_PREFIX_PATH={moved}", f"-DCMAKE_CXX_COMPILER={compiler}")
        run("cmake", "--build", f"{folder}/by-cmake")
        by_cmake = run(f"{folder}/by-cmake/consumer", *arguments, env=environment)

        environment["PKG_CONFIG_PATH"] = f"{moved}/{library_folder}/pkgconfig"
        flags = run("pkg-config", "--cflags", "--libs", f"pop = {version}", env=environment).split()
        run(compiler, "-std=c++20", "-Wall", "-Wextra", "-Wpedantic", "-Werror", f"{source}/consumer.cpp",
            "-o", f"{folder}/by-pkg-config", *flags)
        by_pkg_config = run(f"{folder}/by-pkg-config", *arguments, env=environment)
        if by_cmake != by_pkg_config:
            sys.exit(f"the two programs differ: {by_cmake!r} and {by_pkg_config!r}")
        reported = run(f"{moved}/bin/pop", "--version", env=environment)
        if version not in reported:
            sys.exit(f"pop --version: expected {version}, found {reported!r}")
    print(f"installed {version}; used by CMake and by pkg-config{': ' + by_cmake.strip() if by_cmake.strip() else ''}")


if __name__ == "__main__":
    main()
