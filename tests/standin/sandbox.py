"""The shell script that a container starts with: its own root folder, volumes, hosts file, host name and user.

The root is a fresh tmpfs that shows the host's system folders and the image's paths read-only, and nothing else of the
host. It exists in the container's own mount namespace and goes away with it.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

SYSTEM = "bin sbin lib lib32 lib64 libx32 usr etc opt"
PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

_ROOT = f"""set -e
mount -t tmpfs -o mode=755 tmpfs "$R"; cd "$R"
mkdir -p proc sys dev run tmp var/tmp root home; chmod 1777 tmp var/tmp
for d in {SYSTEM}; do
  if [ -L "/$d" ]; then cp -P "/$d" "$d"; elif [ -d "/$d" ]; then mkdir "$d"; mount --rbind -o ro "/$d" "$d"; fi
done
mount -t proc proc proc; mount --rbind /sys sys
mount -t tmpfs -o mode=755 tmpfs dev; mkdir dev/shm dev/pts; mount -t tmpfs -o mode=1777,size=64m shm dev/shm
for d in null zero full random urandom tty; do touch "dev/$d"; mount --bind "/dev/$d" "dev/$d"; done
ln -s /proc/self/fd dev/fd; ln -s /proc/self/fd/0 dev/stdin; ln -s /proc/self/fd/1 dev/stdout
ln -s /proc/self/fd/2 dev/stderr
"""


class Mount(NamedTuple):
    source: Path
    target: str
    read_only: bool = False


class Process(NamedTuple):
    """A program to run, and its user."""

    argv: Sequence[str]
    env: Mapping[str, str]
    workdir: str = "/"
    user: int | None = None
    group: int | None = None
    fs_group: int | None = None
    no_new_privileges: bool = False
    drop_capabilities: bool = False

    def command(self) -> list[str]:
        """As root inside the container's root -> the process itself, with nothing of the stand-in's environment."""
        privileges = ["/usr/bin/setpriv", "--pdeathsig", "KILL"]
        if self.user is not None:
            group = self.user if self.group is None else self.group
            privileges += ["--reuid", str(self.user), "--regid", str(group)]
            privileges += ["--groups", str(self.fs_group)] if self.fs_group is not None else ["--clear-groups"]
        if self.drop_capabilities:
            privileges += ["--bounding-set", "-all", "--inh-caps", "-all"]
        if self.no_new_privileges:
            privileges.append("--no-new-privs")
        variables = [f"{name}={value}" for name, value in self.env.items()]
        return ["/usr/bin/env", "-i", f"--chdir={self.workdir}", *variables, *privileges, "--", *self.argv]


def script(root: Path, hostname: str, mounts: Sequence[Mount], process: Process, started: Path, read_only: bool) -> str:
    """Touches the file `started` as its last act before it becomes the container's process."""
    lines = [f"R={shlex.quote(str(root))}", _ROOT.rstrip(), *(_bind(mount) for mount in mounts)]
    lines.append(f"echo {shlex.quote(hostname)} > /proc/sys/kernel/hostname")
    if read_only:
        lines.append('mount -o remount,ro "$R"')
    lines.append(f"touch {shlex.quote(str(started))}")
    lines.append(f'exec chroot "$R" {shlex.join(process.command())}')
    return "\n".join(lines)


def _bind(mount: Mount) -> str:
    source, target = shlex.quote(str(mount.source)), shlex.quote(mount.target.lstrip("/"))
    make = f"mkdir -p {target}" if mount.source.is_dir() else f"mkdir -p $(dirname {target}); touch -a {target}"
    present = f"[ -e {target} ] || {{ {make}; }}"
    return f"{present}; mount --bind {'-o ro ' if mount.read_only else ''}{source} {target}"
