"""Serves a cluster of pretended GPU nodes on this machine, for tests and by hand."""

from __future__ import annotations

import argparse
import asyncio
import json
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from pathlib import Path

from aiohttp import web

from tests.standin.cluster import Cluster
from tests.standin.kubeconfig import kubeconfig
from tests.standin.server import Server


def main() -> None:
    parser = argparse.ArgumentParser(prog=f"python -m {__package__}", description=__doc__)
    parser.add_argument("--nodes", type=int, default=0, metavar="N", help="nodes gpu-0 ... gpu-(N-1) with one GPU each")
    parser.add_argument("--gpus", type=int, default=1, help="GPUs of each of these nodes")
    parser.add_argument("--namespace", default="default", help="the namespace that pods go to")
    parser.add_argument("--manifests", type=Path, help="folder whose kustomization.yaml names what it starts with")
    parser.add_argument("--images", type=Path, help="JSON file: image name -> what stands for it (see README.md)")
    parser.add_argument("--port", type=int, default=0, help="0: any free one")
    parser.add_argument("--kubeconfig", type=Path, help="where to write the kubeconfig")
    parser.add_argument("--until-stdin-closes", action="store_true", help="end with the process that started this one")
    asyncio.run(_serve(parser.parse_args()))


async def _serve(options: argparse.Namespace) -> None:
    folder = Path(tempfile.mkdtemp(prefix="standin-"))
    folder.chmod(0o755)
    network = _network()
    enter = ["nsenter", f"--net=/proc/{network.pid}/ns/net", "--"]
    cluster = Cluster(options.namespace, folder, enter, options.manifests)
    if options.images:
        cluster.images.update(json.loads(options.images.read_text()))
    for index in range(options.nodes):
        cluster.set_node(f"gpu-{index}", {"gpus": options.gpus})
    server = Server(cluster, secrets.token_urlsafe(16))
    runner = web.AppRunner(server.app(), access_log=None, shutdown_timeout=1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", options.port)
    await site.start()
    url = f"http://127.0.0.1:{runner.addresses[0][1]}"
    if options.kubeconfig:
        options.kubeconfig.write_text(kubeconfig(url, server.token, options.namespace))
    print(json.dumps({"url": url, "token": server.token}), flush=True)
    await _until_stopped(options.until_stdin_closes)
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


async def _until_stopped(with_stdin: bool) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for signum in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(signum, stop.set)
    if with_stdin:
        loop.add_reader(sys.stdin.fileno(), stop.set)
    with suppress(asyncio.CancelledError):
        await stop.wait()


if __name__ == "__main__":
    main()
