"""Programs that stand for the image, as forks of a process that has imported what they need: that takes ten times as
long as their run.
"""

from __future__ import annotations

import json
import os
import shlex
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench_image.process.parent_death import die_with_parent

SERVE = "import sys; from tests.builders.image_server import serve; from {module} import main; serve(sys.argv[1], main)"
ASK = """
import json, os, socket, sys
server = socket.socket(socket.AF_UNIX)
server.connect(sys.argv[1])
server.sendall(json.dumps([os.getpid(), dict(os.environ)]).encode() + b"\\n")
sys.exit(int(server.recv(9) or 1))
"""


@contextmanager
def image_server(folder: Path, module: str) -> Iterator[Path]:
    """The socket of a process whose forks run `main()` of this module."""
    at, environ = folder / "image", os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    command = [sys.executable, "-c", SERVE.format(module=module), str(at)]
    with subprocess.Popen(command, env=environ, preexec_fn=die_with_parent) as server:
        try:
            while not at.exists():
                assert server.poll() is None
                time.sleep(0.05)
            yield at
        finally:
            server.terminate()


def as_python(folder: Path, server: Path, **environ: str) -> Path:
    """For TRAINBENCH_LOCAL_PYTHON: has the server run its program, whatever module is asked for."""
    python = folder / "python"
    python.with_name("ask.py").write_text(ASK)
    version_check = '[ "$1" = -c ] && exec echo 3.11.0'  # by the task `ready`: which version, and is anything missing
    ask = shlex.join(["exec", sys.executable, "-IS", str(python.with_name("ask.py")), str(server)])
    exports = [f"export {name}={shlex.quote(value)}" for name, value in environ.items()]
    python.write_text("\n".join(["#!/bin/sh", version_check, *exports, ask]) + "\n")
    python.chmod(0o755)
    return python


def serve(at: str, main: Callable[[], int]) -> None:
    """Each fork writes into its client's standard output and ends with its client."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{at}.new")
        listening.listen(64)
        Path(f"{at}.new").rename(at)
        while True:
            client, _ = listening.accept()
            if os.fork() == 0:
                break
            client.close()
    pid, environ = json.loads(client.makefile().readline())
    threading.Thread(target=lambda: client.recv(1) or os._exit(1), daemon=True).start()
    for descriptor in (1, 2):
        os.dup2(os.open(f"/proc/{pid}/fd/{descriptor}", os.O_WRONLY), descriptor)
    os.environ.clear()
    os.environ.update(environ)
    try:
        code = main()
    except SystemExit as end:
        print(end, file=sys.stderr)
        code = 1
    sys.stdout.flush()
    client.sendall(str(code).encode())
