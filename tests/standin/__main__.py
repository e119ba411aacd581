"""Serves a cluster of pretended GPU nodes on this machine until its standard input closes."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from aiohttp import web

from tests.standin.cluster import Cluster
from tests.standin.server import Server


def main() -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("namespace", help="that pods go to")
    parser.add_argument("manifests", type=Path, nargs="?", help="folder with a kustomization.yaml")
    asyncio.run(_serve(parser.parse_args()))


async def _serve(options: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp(prefix="standin-"))
    folder.chmod(0o755)
    network = _network()
    enter = ["nsenter", f"--net=/proc/{network.pid}/ns/net", "--"]
    cluster = Cluster(options.namespace, folder, enter, options.manifests)
    server = Server(cluster, secrets.token_urlsafe(16))
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    print(json.dumps({"url": url, "token": server.token}), flush=True)
    await _until_stdin_closes()
    await cluster.kubelets.stop_all()
    network.kill()
    await runner.cleanup()
    shutil.rmtree(folder, ignore_errors=True)


def _network() -> subprocess.Popen[bytes]:
    """Holds a network that has a loopback and nothing else: pods meet there, and no port of the host is taken."""
    command = "ip link set lo up; echo up; exec sleep infinity"
    holder = subprocess.Popen(
        ["setpriv", "--pdeathsig", "KILL", "unshare", "--net", "sh", "-c", command], stdout=subprocess.PIPE
    )
    assert holder.stdout is not None
    holder.stdout.readline()
    return holder


async def _until_stdin_closes() -> None:
    """The process that started this one holds it."""
    stop = asyncio.Event()
    asyncio.get_running_loop().add_reader(sys.stdin.fileno(), stop.set)
    await stop.wait()


if __name__ == "__main__":
    main()
