#!/usr/bin/env python3
"""What a stranger does: a source archive, a wheel of it by pip, an environment with the wheel alone, an answer.

Usage: wheel.py [ARCHIVE_ONLY]

ARCHIVE_ONLY (any word): only the archive and its metadata, without building (a test of CTest). Needs scikit-build-core; pip
fetches what the build requires. A compiler launcher may be given as CMAKE_CXX_COMPILER_LAUNCHER.
"""

import os
import re
import subprocess
import sys
import tarfile
import tempfile
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TINY = ROOT / "tests/goldens/tiny-q4_1.gguf"
USE = """
import sys, numpy, popcpp
assert popcpp.__version__ == sys.argv[2], popcpp.__version__
engine = popcpp.Engine(sys.argv[1])
answer = engine.session("pop", ratio=0.3).generate([1, 2, 3], max_tokens=8, ignore_eos=True)
pieces = list(answer)
assert len(pieces) == len(answer.ids) == 8 and answer.logits.argmax() == answer.ids[-1]
print(popcpp.available_isas(), engine.info.isa)
"""


def run(*command, **options):
    done = subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))}: exit code {done.returncode}\n{done.stdout[-6000:]}")
    return done.stdout


def source_archive(folder):
    name = run(sys.executable, "-c", "import sys, scikit_build_core.build as b; print(b.build_sdist(sys.argv[1]))", folder,
               cwd=ROOT).split()[-1]
    path = Path(folder) / name
    with tarfile.open(path) as archive:
        names = {member.name.split("/", 1)[1] for member in archive if member.isfile()}
        about = Parser().parsestr(archive.extractfile(name.removesuffix(".tar.gz") + "/PKG-INFO").read().decode())
    tracked = set(run("git", "-C", ROOT, "ls-files", "-co", "--exclude-standard").splitlines())
    missing = {path for path in tracked if re.match(r"(apps|base|bindings|cmake|engine|formats|kernels|model|prune|tensor|text)/", path)} - names
    surplus = names - tracked - {"PKG-INFO"}
    if missing or surplus:
        sys.exit(f"{name}: missing {sorted(missing)[:9]}, not expected {sorted(surplus)[:9]}")
    version = re.search(r"project\(popcpp VERSION ([0-9.]+)", (ROOT / "CMakeLists.txt").read_text())[1]
    if (about["Name"], about["Version"]) != ("popcpp", version):
        sys.exit(f"{name}: expected popcpp {version}, found {about['Name']} {about['Version']}")
    print(f"{name}: {path.stat().st_size / 1e6:.1f} MB, {len(names)} files")
    return path, version


def main():
    with tempfile.TemporaryDirectory(prefix="pop-wheel-") as folder:
        archive, version = source_archive(folder)
        if len(sys.argv) > 1:
            return
        run(sys.executable, "-m", "pip", "wheel", "--disable-pip-version-check", "--no-deps", "-w", folder, archive)
        wheel = next(Path(folder).glob("*.whl"))
        with zipfile.ZipFile(wheel) as contents:
            names = contents.namelist()
            size = sum(item.file_size for item in contents.infolist())
        extra = [n for n in names if not re.fullmatch(r"popcpp/(__init__\.py|_core\.pyi|py\.typed|_core\.[\w-]+\.so)|popcpp-.+\.dist-info/.+", n)]
        if extra or len([n for n in names if n.startswith("popcpp/")]) != 4:
            sys.exit(f"{wheel.name}: expected the extension, its stub, py.typed and __init__.py, found {names}")
        print(f"{wheel.name}: {wheel.stat().st_size / 1e6:.1f} MB, {size / 1e6:.1f} MB unpacked")
        venv.create(f"{folder}/venv", with_pip=True)
        run(f"{folder}/venv/bin/pip", "install", "--disable-pip-version-check", wheel)
        clean = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        print(run(f"{folder}/venv/bin/python", "-c", USE, TINY, version, cwd=folder, env=clean).strip())


if __name__ == "__main__":
    main()
