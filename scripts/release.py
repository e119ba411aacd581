"""Builds and checks the wheel and the sdist of the last commit, in dist/: `make release REPOSITORY=https://...`.

REPOSITORY is the project's address for people; by default the remote `origin`, if that is a web address. The README
that the packages carry, and PyPI shows, has absolute links and pictures below it; without one it has neither.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
DIST = ROOT / "dist"
TOOLS = ("build==1.6.1", "twine==7.0.0")
VERSION = re.compile(r'^__version__ = "(\d+\.\d+\.\d+)"', re.MULTILINE)
PICTURE = re.compile(r"^<picture>.*</picture>\n", re.MULTILINE)
SOURCE = re.compile(r'((?:src|srcset)=")([^":]+)"')
LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?:|#)([^)]+)\)")


def main(repository: str) -> int:
    version = the_version()
    _check_tree(version)
    url = repository or _origin()
    with tempfile.TemporaryDirectory(prefix="trainbench-release-") as name:
        tree, tools = Path(name) / "tree", Path(name) / "tools"
        tree.mkdir()
        _run("git", "archive", "--output", f"{name}/tree.tar", "HEAD")
        _run("tar", "xf", f"{name}/tree.tar", "-C", str(tree))
        readme = tree / "README.md"
        readme.write_text(absolute_readme(readme.read_text(), url, version))
        if url:
            _add_urls(tree / "pyproject.toml", url)
        python = _environment(tools, *TOOLS)
        _run(python, "-m", "build", "--outdir", str(DIST), str(tree))
        wheel, sdist = DIST / f"trainbench-{version}-py3-none-any.whl", DIST / f"trainbench-{version}.tar.gz"
        _run(python, "-m", "twine", "check", "--strict", str(wheel), str(sdist))
        if missing := missing_files(wheel, tree):
            sys.exit(f"release: the wheel lacks {', '.join(missing)}: name them in pyproject.toml, package-data")
        _run(_environment(Path(name) / "airflow", f"{wheel}[control]"), str(ROOT / "scripts" / "try_wheel.py"))
    print(f"release: {wheel.name} and {sdist.name} are in dist/; nothing was uploaded")
    return 0


def the_version() -> str:
    text = (ROOT / "plugins" / "trainbench" / "__init__.py").read_text()
    match = VERSION.search(text)
    if match is None:
        sys.exit("release: plugins/trainbench/__init__.py has no __version__ of three numbers")
    return match[1]


def absolute_readme(text: str, url: str, version: str) -> str:
    """README for readers outside of the repository: links and pictures at the version's tag, or none."""
    if not url:
        return LINK.sub(lambda link: link[2], PICTURE.sub("", text))
    text = SOURCE.sub(lambda source: f'{source[1]}{url}/raw/v{version}/{source[2]}"', text)
    text = LINK.sub(lambda link: f"{link[1]}[{link[2]}]({url}/blob/v{version}/{link[3]})", text)
    return text.replace("git clone REPOSITORY ", f"git clone {url} ")


def missing_files(wheel: Path, tree: Path) -> list[str]:
    """Files of the packages, DAGs and schemas that a wheel lacks."""
    with zipfile.ZipFile(wheel) as archive:
        held = set(archive.namelist())
    data = wheel.name.removesuffix("-py3-none-any.whl") + ".data/data/share/trainbench/"
    shared = (*(tree / "dags").glob("*.py"), *(tree / "docs" / "schemas").glob("*.json"))
    wanted = {f"{data}{path.parent.name}/{path.name}" for path in shared}
    for folder, base in (("plugins/trainbench", "plugins"), ("bench_image", ".")):
        files = (path for path in (tree / folder).rglob("*") if path.is_file())
        wanted |= {str(path.relative_to(tree / base)) for path in files}
    return sorted(wanted - held)


def _check_tree(version: str) -> None:
    if _git("status", "--porcelain"):
        sys.exit("release: the working tree has changes that are not committed: a release holds what is committed")
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", (ROOT / "CHANGELOG.md").read_text(), re.M):
        sys.exit(f"release: CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'")


def _origin() -> str:
    """The web address of the remote `origin`; empty: it has none."""
    url = _git("remote", "get-url", "origin").removesuffix(".git").rstrip("/")
    return url if re.fullmatch(r"https://[\w.-]+/[\w./-]+", url) else ""


def _git(*arguments: str) -> str:
    """The output of a git command; empty where it fails."""
    return subprocess.run(["/usr/bin/env", "git", *arguments], cwd=ROOT, capture_output=True, text=True).stdout.strip()


def _add_urls(pyproject: Path, url: str) -> None:
    lines = {"Source": url, "Documentation": f"{url}/tree/main/docs", "Changelog": f"{url}/blob/main/CHANGELOG.md"}
    table = "".join(f'{name} = "{address}"\n' for name, address in lines.items())
    pyproject.write_text(f"{pyproject.read_text()}\n[project.urls]\n{table}")


def _environment(folder: Path, *packages: str) -> str:
    """The Python of a new environment with these packages."""
    _run(sys.executable, "-m", "venv", str(folder))
    python = str(folder / "bin" / "python")
    _run(python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *packages)
    return python


def _run(*command: str) -> None:
    if (code := subprocess.run(command, cwd=ROOT).returncode) != 0:
        sys.exit(f"release: `{' '.join(command[:4])}` ended with {code}; the lines above say why")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1] if len(sys.argv) > 1 else ""))
