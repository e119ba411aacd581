"""Makes the two environments: `.venv` (Airflow, no torch) and `.venv-image` (torch, no Airflow).

Run by `make setup` with any Python 3; standard library only, and written so that an old Python can read the refusal.
`setup.py demo` leaves out what only tests and checks need.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import time

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OLDEST, NEWEST = (3, 11), (3, 13)
PROGRESS_S = 10
NEEDED_GB = 9  # 6.6 GB with the PyTorch of PyPI, which brings CUDA, and what pip unpacks them from
CUDA_REQUIREMENTS = "requirements/image-cuda.txt"
SOURCE_REQUIREMENTS = "requirements/image-source.txt"
ENVIRONMENTS = {
    ".venv": ("requirements/control.txt", "requirements/dev.txt", "Airflow and the control plane"),
    ".venv-image": ("requirements/image.txt", "requirements/image-dev.txt", "PyTorch and the benchmark"),
}
# What Airflow's components and each run import: compiled once here, and not by all that start at the same time.
COMPILED = {
    ".venv": "airflow.api_fastapi.app, airflow.jobs.scheduler_job_runner, airflow.dag_processing.manager, "
    "airflow.providers.cncf.kubernetes.operators.pod",
    ".venv-image": "torch, transformers.models.llama.modeling_llama",
}


def main():
    version = sys.version_info[:2]
    if not OLDEST <= version <= NEWEST:
        stop(
            "Python %d.%d is not supported: trainbench needs 3.11, 3.12 or 3.13. "
            "Name one with `make PYTHON=python3.12 ...`." % version
        )
    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor() as pool:  # side by side: one core unpacks while the other downloads
        for made in [pool.submit(make, name, "demo" in sys.argv[1:]) for name in ENVIRONMENTS]:
            made.result()
    install_project()


def make(name, for_demo):
    """One environment, unless it is there and up to date. What tests need joins one that was made for the demo."""
    runtime, all_of_it, what = ENVIRONMENTS[name]
    stamp = os.path.join(ROOT, name, "installed.sha256")
    installed = read(stamp)
    if installed == digest(all_of_it) or (for_demo and installed == digest(runtime)):
        return
    check_disk()
    started = time.time()
    requirements = runtime if for_demo else all_of_it
    print("setup: %s (%s) ..." % (name, what), flush=True)
    if installed == digest(runtime):
        install_hashed(name, requirements)
    else:
        install(name, requirements)
    if not sys.dont_write_bytecode:
        compile_imports(name)
    with open(stamp, "w") as file:
        file.write(digest(requirements))
    print("setup: %s ready after %.0f s" % (name, time.time() - started), flush=True)


def install(name, requirements):
    run([sys.executable, "-m", "venv", "--clear", os.path.join(ROOT, name)])
    install_hashed(name, requirements)
    if name == ".venv":
        return
    # The index's CPU build where it has one: its hash is not that of PyPI's build, so none is required.
    run_pip(name, [torch_version()])
    # Published as source only, and its build imports torch; no operators: their compilers are not needed here.
    os.environ["DS_BUILD_OPS"] = "0"
    install_hashed(name, SOURCE_REQUIREMENTS, "--no-build-isolation")


def install_hashed(name, requirements, *options):
    """What a file names, which is every need of each."""
    run_pip(name, ["--require-hashes", "--no-deps", "--requirement", os.path.join(ROOT, requirements), *options])


def run_pip(name, arguments):
    """`pip install` with its output in the environment's install.log; says every PROGRESS_S how far it is."""
    path, started = os.path.join(ROOT, name, "install.log"), time.time()
    command = [os.path.join(ROOT, name, "bin", "python"), "-m", "pip", "install", "--no-color"]
    command += ["--disable-pip-version-check", *arguments]
    if not sys.dont_write_bytecode:
        command.append("--no-compile")  # half of the time it takes; a module is compiled at its first import
    with open(path, "w") as log:
        pip = subprocess.Popen(command, cwd=ROOT, stdout=log, stderr=subprocess.STDOUT)
    while True:
        try:
            code = pip.wait(PROGRESS_S)
            break
        except subprocess.TimeoutExpired:
            print("setup: %s: %s, %.0f s" % (name, stage(read(path) or ""), time.time() - started), flush=True)
    if code != 0:
        print("".join((read(path) or "").splitlines(True)[-20:]), file=sys.stderr)
        check_disk()
        stop("pip failed with exit code %d; the lines above and %s say why." % (code, path))


def stage(output):
    """What pip does now, by its output so far."""
    packages = [line.split()[1] for line in output.splitlines() if line.startswith("Collecting ")]
    if "Installing collected packages" in output:
        return "unpacking what was downloaded"
    return "downloading package %d, %s" % (len(packages), packages[-1]) if packages else "looking for packages"


def compile_imports(name):
    """Import them in a process of its own, with a home of Airflow's that goes away."""
    with tempfile.TemporaryDirectory() as home:
        python = os.path.join(ROOT, name, "bin", "python")
        run([python, "-W", "ignore", "-c", "import " + COMPILED[name]], env=dict(os.environ, AIRFLOW_HOME=home))


def torch_version():
    """Such as "torch==2.13.0"."""
    (line,) = [line for line in read(os.path.join(ROOT, CUDA_REQUIREMENTS)).splitlines() if line.startswith("torch==")]
    return line.split()[0]


def install_project():
    """The command `trainbench`, anew when pyproject.toml says something else than when it was installed."""
    stamp = os.path.join(ROOT, ".venv", "project.sha256")
    with open(os.path.join(ROOT, "pyproject.toml"), "rb") as file:
        wanted = hashlib.sha256(file.read()).hexdigest()
    if read(stamp) == wanted:
        return
    python = os.path.join(ROOT, ".venv", "bin", "python")
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps", "--editable", ROOT])
    # A by-product of the build, which Airflow, started in this folder, would take for a second installation.
    shutil.rmtree(os.path.join(ROOT, "trainbench.egg-info"), ignore_errors=True)
    with open(stamp, "w") as file:
        file.write(wanted)


def run(command, env=None):
    try:
        subprocess.run(command, check=True, cwd=ROOT, env=env)
    except subprocess.CalledProcessError as error:
        check_disk()
        stop("`%s` failed with exit code %d; the lines above say why." % (" ".join(command[:6]), error.returncode))


def check_disk():
    free_gb = shutil.disk_usage(ROOT).free / 1e9
    if free_gb < NEEDED_GB:
        stop("the disk has %.1f GB free and the environments need %d GB: free some space." % (free_gb, NEEDED_GB))


def digest(requirements):
    """Of all requirement files and the interpreter: a change of either makes the environment anew."""
    content = sys.version.encode()
    related = {requirements, requirements.replace("-dev", ""), requirements.replace("/dev", "/control")}
    for name in sorted(related | ({CUDA_REQUIREMENTS, SOURCE_REQUIREMENTS} if "image" in requirements else set())):
        path = os.path.join(ROOT, name)
        if os.path.exists(path):
            with open(path, "rb") as file:
                content += file.read()
    return hashlib.sha256(content).hexdigest()


def read(path):
    try:
        with open(path) as file:
            return file.read()
    except OSError:
        return None


def stop(sentence):
    sys.exit("setup: " + sentence)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
